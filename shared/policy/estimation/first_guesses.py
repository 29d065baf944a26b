"""What is taken for true before anything is known."""

INITIAL_CHANGE_RATE = 1.0 / 60.0
"""Mean of α before anything is known, per day."""

INITIAL_SHAPE = 0.5
"""Shape A of the prior of α before anything is known: spread over orders of magnitude."""

INITIAL_PRECISION = 0.5
"""Mean precision of a signal source before anything is known."""
