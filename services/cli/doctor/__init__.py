"""What `freshet doctor` looks at, an area a module."""
