"""When to crawl: the budget as one sequence of slots that all shards know."""
