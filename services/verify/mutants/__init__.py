"""Faults planted into the running workers, one at a time, to see that the checks find them."""
