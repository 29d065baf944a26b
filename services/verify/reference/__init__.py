"""What events come to by the documented rules, in plain Python: shares no code with the estimator
but the mathematics of shared/policy."""
