"""Learning (α, κ, γ) of pages from their crawl histories.

`smoothed` is the reference estimator of the lab; `change_rates` holds the estimators of [K]
equations 10 and 11 and the naive precision and recall.
"""
