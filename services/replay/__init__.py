"""The lab: any trace through the production formulas with a virtual clock, against every policy.

`trace` holds what happened, `engine` and its neighbours decide which page each slot crawls,
`books` judges the crawls; `policies` names everything that can be compared, `scenarios` bends a
trace, and `experiments` repeats what the papers published.
"""
