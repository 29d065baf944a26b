"""One file a command or group of commands; imported when it is used."""
