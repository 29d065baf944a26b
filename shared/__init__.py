"""What two services need: the maths, the contracts, the store, the runtime."""
