"""The demonstration: a small web of real HTTP sites on this machine, and Freshet around it."""
