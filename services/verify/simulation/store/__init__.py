"""A model of PostgreSQL: the statements of `shared.store`, in transactions that are real enough."""
