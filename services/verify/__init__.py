"""Harming a running system on purpose, and checking on its records that nothing was lost."""
