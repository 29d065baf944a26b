"""What the hosts of a shard that is loaded have left in their buckets: reckoned from their crawls.

Nobody has stored it. All requests since a while ago are known, and each takes a token. By then a
host may have had none: what was asked for before may not be answered, or its answer not be stored.
So none is taken to have been left by the host's last crawl, if that came earlier, and none by the
first of its requests, but for what has come since the while began. What comes in between depends on
the host's limit. The newest limits and answers may be unread when the shard is loaded: then it is
reckoned once more when they are known, before anything is picked.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import last_attempt_of
from services.scheduler.state.hosts import Hosts, depth_of, refill, take_token
from services.scheduler.state.rows import NEVER, REMOVED, Rows
from shared.policy.compiled import compiled

_WRITTEN_SECONDS: Final = 3.0
"""Wall seconds: of requests that were made within so long the later ones may be written first."""


@compiled
def last_crawls(pages: Rows, attempts: Rows, hosts: int) -> NDArray[np.float64]:
    """The last crawl of each host by what is known of its pages, failed ones included."""
    last = np.full(hosts, NEVER)
    for row in range(pages.size):
        page = pages[row]
        if page.status != REMOVED:
            last[page.host] = max(last[page.host], last_attempt_of(attempts, page))
    return last


@compiled
def _spend(
    rows: Rows,
    last: NDArray[np.float64],
    places: NDArray[np.int64],
    requested_at: NDArray[np.float64],
    since: float,
) -> None:
    """Let every host have no token at its last crawl, or when all requests begin to be known if
    the crawl is of one of those; one at its first request, if no more have come since then; and
    take one for each request.

    Beginning with full buckets, a host that is at its limit all the time would keep what it has
    too much: it is filled as fast as it is emptied.
    """
    is_of_known = np.zeros(last.size, np.bool_)
    for index in range(places.size):
        is_of_known[places[index]] |= since <= requested_at[index] <= last[places[index]]
    for place in range(last.size):
        host = rows[place]
        begin = since if is_of_known[place] else last[place]
        if begin > host.filled_at:
            host.tokens, host.filled_at = 0.0, begin
    is_first = np.ones(last.size, np.bool_)
    for index in range(places.size):
        host = rows[places[index]]
        refill(host, requested_at[index])
        if is_first[places[index]]:
            come = max(requested_at[index] - since, 0.0) * host.rate if host.rate > 0.0 else 0.0
            host.tokens = min(host.tokens, max(come, 1.0))
            is_first[places[index]] = False
        take_token(host, requested_at[index])


@compiled
def _spend_anew(
    hosts: Rows,
    changed: NDArray[np.int64],
    last: NDArray[np.float64],
    places: NDArray[np.int64],
    requested_at: NDArray[np.float64],
    since: float,
) -> None:
    """The same by the limits of now, of some hosts; what leaves them less holds."""
    anew = hosts[changed]
    for place in range(anew.size):
        anew[place].tokens, anew[place].filled_at = depth_of(anew[place]), NEVER
    _spend(anew, last, places, requested_at, since)
    for place in range(anew.size):
        host, other = hosts[changed[place]], anew[place]
        later = max(host.filled_at, other.filled_at)
        refill(host, later)
        refill(other, later)
        host.tokens = min(host.tokens, other.tokens)


class SpentTokens:
    """Of the hosts of one shard, from when it is loaded until it has caught up."""

    def __init__(
        self,
        hosts: Hosts,
        last: NDArray[np.float64],
        numbers: NDArray[np.int64],
        requested_at: NDArray[np.float64],
        speed: float,
    ) -> None:
        """Spend them, by the limits that are known.

        Args:
            hosts: of the shard.
            last: the last crawl of each, as far as it is known.
            numbers: the host of each recent request, in the order they were made.
            requested_at: their times; there is none that was made later than the first and is not
                among them.
            speed: clock seconds in one of the wall.
        """
        self._hosts = hosts
        self._last = last
        self._numbers = numbers
        self._requested_at = requested_at
        self._rates = hosts.rows["rate"][: last.size].copy()
        self._has_news = np.zeros(last.size, np.bool_)
        self._since = float(requested_at.min(initial=np.inf)) + _WRITTEN_SECONDS * speed
        _spend(hosts.rows, last, numbers, requested_at, self._since)

    def note(self, numbers: NDArray[np.int32], crawled_at: NDArray[np.float64]) -> None:
        """Crawls of hosts become known."""
        if (more := len(self._hosts) - self._last.size) > 0:
            self._last = np.append(self._last, np.full(more, NEVER))
            self._rates = np.append(self._rates, self._hosts.known["rate"][-more:])
            self._has_news = np.append(self._has_news, np.ones(more, np.bool_))
        self._has_news[numbers[self._last[numbers] < crawled_at]] = True
        np.maximum.at(self._last, numbers, crawled_at)

    def spend_anew(self) -> NDArray[np.int64]:
        """All is read: reckon again where there is a later crawl, or another limit.

        Returns:
            numbers of those hosts.
        """
        rates = self._hosts.rows["rate"][: self._rates.size]
        changed = np.flatnonzero(self._has_news | (rates != self._rates))
        if changed.size:
            theirs = np.isin(self._numbers, changed)
            places = np.searchsorted(changed, self._numbers[theirs])
            last, requested_at = self._last[changed], self._requested_at[theirs]
            _spend_anew(self._hosts.rows, changed, last, places, requested_at, self._since)
        return changed
