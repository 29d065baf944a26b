"""Every formula Freshet stands on, exact and compiled: pure functions of columns of pages.

Rates are per day, times in days, importance has no dimension.
"""
