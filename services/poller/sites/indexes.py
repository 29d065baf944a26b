"""The sitemaps that an index names, and those that it names no more. Pure."""

from collections.abc import Iterable, Sequence
from urllib.parse import urljoin

from services.poller.sites.news import Comparison
from shared.contracts.identity import BadUrl, identify
from shared.store.watched import INDEX, DueSource, NewSource


def children_of(due: DueSource, base: str, urls: Iterable[str]) -> dict[str, NewSource]:
    """Sitemaps of an index that are of the site's hosts, by the address as it is written.

    Args:
        due: the index.
        base: where it came from in the end.
        urls: of them, as written.
    """
    found: dict[str, NewSource] = {}
    for url in urls:
        try:
            place = identify(urljoin(base, url))
        except (BadUrl, ValueError):
            continue
        if place.host == due.host or place.host in due.hosts:
            # Its pages are as reliable as those of the others, which the same program writes.
            found[url] = NewSource(place.url, place.host, due.source, "", INDEX)
    return found


def named_no_more(
    watched: Sequence[str], children: Iterable[NewSource], comparison: Comparison
) -> list[str]:
    """Sitemaps that an index names no more, now and when it was read last: servers of a site that
    differ for a while take none away by turns. One that names none at all says nothing.

    Args:
        watched: URLs that are watched because it named them.
        children: what it names now.
        comparison: of this reading with the last.
    """
    named = {child.url for child in children}
    if not named:
        return []
    return [url for url in watched if url not in named and not comparison.was_there(url)]
