"""URLs that operators have set, as others may see them."""


def shown(url: str) -> str:
    """A URL without what may be secret of it: its user, query and fragment.

    Args:
        url: anything that was meant to be one.
    """
    scheme, found, rest = url.partition("#")[0].partition("?")[0].partition("://")
    if not found:
        return scheme.rpartition("@")[2]
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
