"""The discoverer: what crawls come upon in, new pages out."""
