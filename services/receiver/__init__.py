"""The receiver: pings as the web sends them, over HTTP, become signals."""
