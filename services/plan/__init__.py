"""How large an installation must be, added up from what was measured; for `freshet plan`."""
