"""The published experiments, from seeds: [N] figures 2–5, 7–11 and 14, [K] figures 1–3.

Each module computes figures as plain numbers with standard errors; `drawing` makes pictures of
them and `catalogue` names them all.
"""
