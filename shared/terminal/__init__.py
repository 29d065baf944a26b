"""What commands and benchmarks say to people and programs."""
