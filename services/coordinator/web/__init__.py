"""The page that the coordinator serves: static files, nothing from anywhere else."""
