"""Alembic migrations of the database; `freshet migrate` runs them."""
