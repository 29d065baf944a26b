"""Learning (α, κ, γ) of pages from their crawl histories.

The production estimator is three modules that work together: `host_priors` (empirical Bayes: what
a host says of its pages), `bursts` (how a page's rate depends on its last change) and `map_fit`
(the posterior mode of each page). `smoothed` is the reference estimator of the lab;
`change_rates` holds the estimators of [K] equations 10 and 11 and naive precision and recall.
`histories` defines the two layouts of crawl records that all of them take.
"""
