"""The sitemaps that an index names, and those that it names no more. Pure."""

from collections.abc import Iterable, Sequence
from urllib.parse import urljoin

from services.poller.sites.news import Comparison
from shared.contracts.identity import BadUrl, identify
from shared.store.watched import INDEX, DueSource, NewSource


def children_of(due: DueSource, base: str, comparison: Comparison) -> dict[str, NewSource]:
    """Sitemaps of an index that are of the site's hosts, by the address as it is written. They are
    remembered by the one under which they are watched as well.

    Args:
        due: the index.
        base: where it came from in the end.
        comparison: of this reading with the last.
    """
    found: dict[str, NewSource] = {}
    for url in comparison.urls:
        try:
            place = identify(urljoin(base, url))
        except (BadUrl, ValueError):
            continue
        if place.host == due.host or place.host in due.hosts:
            # Its pages are as reliable as those of the others, which the same program writes.
            found[url] = NewSource(place.url, place.host, due.source, "", INDEX)
            comparison.remember_as(url, place.url)
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
