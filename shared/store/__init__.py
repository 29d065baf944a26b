"""PostgreSQL: the truth about every page, its parameters, and how far each stream was applied."""
