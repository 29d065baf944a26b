"""Hosts as operators name them: one by one, or all below a domain."""

from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from shared.contracts.identity import BadUrl, identify

KNOWN: Final = "known"
ANY: Final = "any"
_BELOW: Final = "*."


def host_pattern(text: str) -> str:
    """A name or pattern of hosts as they are compared: `known`, `any`, a host, or `*.` and a
    domain, which is all hosts below it.

    Raises:
        ValueError: it is none of these.
    """
    below, name = (_BELOW, text[2:]) if text.startswith(_BELOW) else ("", text)
    if not below and name in (KNOWN, ANY):
        return name
    try:
        page = identify(f"http://{name}/")
    except BadUrl:
        page = None
    if page is None or page.url != f"http://{page.host}/" or set(name) & set("/@?#*"):
        raise ValueError(
            f"{text[:100]!r} names no hosts: write a host (example.com, example.com:8080), all "
            "below a domain (*.example.com), known or any"
        )
    return below + page.host


HostPatternNames = Annotated[
    tuple[Annotated[str, AfterValidator(host_pattern)], ...],
    Field(min_length=1, max_length=10_000),
]
_UrlPattern = Annotated[str, Field(min_length=1, max_length=1000)]
UrlPatterns = Annotated[tuple[_UrlPattern, ...], Field(max_length=1000)]
ImportanceByPattern = Annotated[
    dict[_UrlPattern, Annotated[float, Field(ge=0.0, le=1e12)]], Field(max_length=1000)
]
"""Types of settings."""


class HostPatterns:
    """Several of them together."""

    def __init__(self, patterns: Iterable[str]) -> None:
        given = set(patterns)
        self.any = ANY in given
        self.known = KNOWN in given
        """Whether those count, too, that Freshet has pages of."""
        self._below = frozenset(p.removeprefix(_BELOW) for p in given if p.startswith(_BELOW))
        self._exact = frozenset(p for p in given if not p.startswith(_BELOW))

    def name(self, host: str) -> bool:
        """Whether a host is one of those that are named, or below one of the domains."""
        if self.any or host in self._exact:
            return True
        _, dot, domain = host.partition(".")
        while dot and self._below:
            if domain in self._below:
                return True
            _, dot, domain = domain.partition(".")
        return False
