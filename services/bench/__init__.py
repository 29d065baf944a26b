"""Benchmarks of the policy library: one module a subject, each with `run(pages, seed)`."""
