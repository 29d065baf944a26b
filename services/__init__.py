"""One folder a worker, all with the same shape; and the tools around them."""
