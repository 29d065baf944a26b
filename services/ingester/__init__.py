"""The ingester: untrusted signals in, clean and deduplicated page signals out."""
