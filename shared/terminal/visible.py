"""Texts of strangers, as a terminal may show them."""


def visible(written: str) -> str:
    """A text without what a terminal would obey, and without ends of lines: messages that nobody
    could read, and names that strangers give, may have any character."""
    if written.isprintable():
        return written
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in written)
