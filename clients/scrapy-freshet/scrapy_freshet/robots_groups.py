"""Of a robots.txt, the one group of rules that is for us, as Protego would choose it, but that a
list of agents goes on until the first rule, as RFC 9309 has it: to Protego a crawl delay ends it.

Protego keeps each rule once for every agent that it is for: a file of 64 kB in which thousands of
agents share thousands of rules takes half a minute and 400 MB. What is handed on from here names
one agent, has each rule once, and only lines that can be read in one way.

The workers and the crawlers' package for Scrapy, which installs none of them, have this same file.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from protego import Protego

_AGENT: Final = "user-agent"
_OTHER: Final = "other"
"""What no parser knows."""

_RULES: Final = frozenset({"disallow", "allow"})
"""They alone end a list of agents: what else stands in it is not to interfere (RFC 9309, 2.2.4)."""

_SITE_WIDE: Final = frozenset({"sitemap", "host"})
"""They are no part of any group."""

_SPELLINGS: Final = {
    _AGENT: ("user-agent", "useragent", "user agent"),
    "disallow": ("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"),
    "allow": ("allow",),
    "crawl-delay": ("crawl-delay", "crawl delay"),
    "request-rate": ("request-rate", "request rate"),
    "visit-time": ("visit-time", "visit time"),
    "sitemap": ("sitemap", "sitemaps", "site-map"),
    "host": ("host",),
}
_FIELDS: Final = {written: field for field, all_ in _SPELLINGS.items() for written in all_}
_MOST_WORDS: Final = 2
"""Of a field."""


def own_group(text: str, agent: str) -> str:
    """A robots.txt for everybody that says what this one says to an agent, and where sitemaps are.

    It has a line more than the file at most, and takes time in proportion to it.

    Args:
        text: the file.
        agent: who asks.
    """
    said = [found for line in text.splitlines() if (found := _directive(line)) is not None]
    own = _own_name(said, agent)
    rules, site_wide = [], []
    is_ours = amid_agents = False
    for field, value in said:
        if field == _AGENT:
            is_ours = (is_ours and amid_agents) or (own is not None and own in _names(value))
            amid_agents = True
        elif field in _SITE_WIDE:
            site_wide.append(f"{field}: {value}")
        else:
            amid_agents = amid_agents and field not in _RULES
            if is_ours and field != _OTHER:
                rules.append(f"{field}: {value}")
    return "\n".join((f"{_AGENT}: *", *rules, *site_wide))


def _directive(line: str) -> tuple[str, str] | None:
    """The field of a line, by one name for all its spellings, and the value; None: it says nothing.

    As generous as Protego: there may be other spaces in place of the colon, and within the field.
    """
    line = line.partition("#")[0].strip()
    written, colon, value = line.partition(":")
    if colon:
        if (field := _FIELDS.get(written.strip().lower())) is not None:
            return field, value.strip()
        if not value or value[0].isspace():
            return _OTHER, ""
    first = line.split(maxsplit=_MOST_WORDS)[:_MOST_WORDS]
    for words in range(1, len(first) + 1):
        if (field := _FIELDS.get(" ".join(first[:words]).lower())) is not None:
            return field, " ".join(line.split()[words:])
    return (_OTHER, "") if colon else None


def _names(value: str) -> tuple[str, ...]:
    """The name of a line of agents: asterisks do not count, but alone they mean everybody."""
    name = value.lower() if value == "*" else value.lower().replace("*", "")
    return (name,) if name else ()


def _own_name(said: Sequence[tuple[str, str]], agent: str) -> str | None:
    """The name whose rules are for an agent; None: there are none.

    Protego itself is asked, by a file in which each name that may be the agent's has another delay.
    """
    names = list(dict.fromkeys(_names_within(said, agent.lower())))
    # Asterisks around a name are dropped, and the spaces at its ends are not.
    groups = (
        f"{_AGENT}: {name if name == '*' else f'*{name}*'}\ncrawl-delay: {place}"
        for place, name in enumerate(names)
    )
    place = Protego.parse("\n".join(groups)).crawl_delay(agent)
    return None if place is None else names[int(place)]


def _names_within(said: Sequence[tuple[str, str]], agent: str) -> Iterator[str]:
    for field, value in said:
        if field == _AGENT:
            yield from (name for name in _names(value) if name == "*" or name in agent)
