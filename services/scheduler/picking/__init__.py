"""Which page goes to the next slot: exactly the most urgent, without a look at every page. Pure."""
