"""Everything that Freshet needs on one machine: broker, PostgreSQL, supervisor of processes."""
