"""The coordinator: one budget, one multiplier λ₀, and each shard's part of it."""
