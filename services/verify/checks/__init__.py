"""The promises, each checked on the ledger by rules written down here once more."""
