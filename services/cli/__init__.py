"""The command `freshet`."""
