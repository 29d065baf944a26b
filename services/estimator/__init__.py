"""The estimator: the one writer of page state, which learns the parameters of the page model."""
