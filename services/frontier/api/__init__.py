"""URLFrontier's API, as crawler-commons publishes it (2.6), and what `make api` makes of it."""
