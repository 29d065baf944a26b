"""Watched sites: their sitemaps and feeds are read again and again."""
