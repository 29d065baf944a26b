"""The whole system on one machine, as `freshet run` and the benchmarks start it, with a world."""
