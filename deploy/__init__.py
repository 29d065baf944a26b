"""How Freshet runs: on one machine, in containers, in a cluster."""
