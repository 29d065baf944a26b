"""IndexNow, as search engines take it: <https://www.indexnow.org/documentation>."""
