"""A subscriber of WebSub, <https://www.w3.org/TR/websub/>."""
