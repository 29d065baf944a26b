"""What a document says that it did not say before. Pure.

Of each entry a hash of its address and its date are kept, 12 bytes: 600 kB of a full sitemap. Dates
only rise: two servers of a site that differ make no news by turns.
"""

from typing import Final, NamedTuple

import numpy as np
import xxhash

from services.poller.sites.entries import Entry
from shared.discovery.dates import believable, observed_at, read_date

_PACKED: Final = np.dtype([("address", "<u8"), ("at", "<u4")])


class Known(NamedTuple):
    """What a source's document said when it was read last."""

    dates: dict[int, int]
    """Hash of an address → its date, Unix seconds; 0: it has none."""
    is_first: bool
    """It was never read."""


class News(NamedTuple):
    """Something that an entry says."""

    url: str
    """As written."""
    is_new: bool
    """The document did not have the address before."""
    observed_at: float | None
    """Unix seconds; None: nothing is said of it."""
    signals: bool
    """Whether it says that the page has changed."""
    is_exact: bool
    """Whether the time is more than a day's."""


def unpack_known(packed: bytes, *, is_first: bool) -> Known:
    """What was kept of a source."""
    rows = np.frombuffer(packed, _PACKED)
    addresses, dates = rows["address"].tolist(), rows["at"].tolist()
    return Known(dict(zip(addresses, dates, strict=True)), is_first)


def pack_known(dates: dict[int, int]) -> bytes:
    """As it is stored."""
    packed = np.empty(len(dates), _PACKED)
    packed["address"] = np.fromiter(dates.keys(), np.uint64, len(dates))
    packed["at"] = np.fromiter(dates.values(), np.uint32, len(dates))
    return packed.tobytes()


class Comparison:
    """Takes a document's entries, and keeps what is news.

    - An address that the document did not have before is a page. It is a signal as well where the
      document was read before: of its date, or, in a feed, of now.
    - A date that moved on is a signal of that date, unless it is so old that nobody would take it.
    - An address that is named more than once is news once, of the latest of its dates.

    The first reading makes no signals: all of its dates are old news, or made up.
    """

    def __init__(self, known: Known, now: float, max_age_seconds: float) -> None:
        """Make it.

        Args:
            known: what the document said before.
            now: Unix seconds.
            max_age_seconds: older dates make no signals.
        """
        self._known = known
        self._now = now
        self._oldest = now - max_age_seconds
        self.dates: dict[int, int] = {}
        """What the document says in this reading."""
        self._also: dict[int, int] = {}
        self._news: dict[int, News] = {}
        self.urls: list[str] = []
        """Of all entries, as written."""

    def give(self, entry: Entry) -> None:
        """Take an entry."""
        address = _hash_of(entry.url)
        self.urls.append(entry.url)
        stated = believable(read_date(entry.stated), self._now) if entry.stated else None
        date = 0 if stated is None else int(stated.at)
        before = self._known.dates.get(address)
        latest = self.dates.get(address, before)
        self.dates[address] = max(date, latest or 0)
        if latest is not None and date <= latest:
            return
        at = None if stated is None else observed_at(stated, self._now)
        signals = not self._known.is_first and at is not None and at >= self._oldest
        is_exact = stated is not None and not stated.whole_day
        if before is None or signals:
            self._news[address] = News(entry.url, before is None, at, signals, is_exact)

    @property
    def news(self) -> list[News]:
        """All of it, in the order in which it came."""
        return list(self._news.values())

    @property
    def remembered(self) -> dict[int, int]:
        """What to remember of this reading."""
        return self._also | self.dates

    def remember_as(self, url: str, name: str) -> None:
        """Remember an address by another name, too, which `was_there` may be asked about."""
        self._also[_hash_of(name)] = self.dates[_hash_of(url)]

    def new_say_nothing(self) -> None:
        """Of a document that is compared once more: it has had its addresses all the time."""
        for address, news in self._news.items():
            if news.is_new:
                self._news[address] = news._replace(signals=False)

    def forget(self, url: str) -> None:
        """Look at an address anew the next time."""
        self.dates.pop(_hash_of(url), None)

    def was_there(self, url: str) -> bool:
        """Whether the document had an address, as it is written here or by this other name, when it
        was read last."""
        return _hash_of(url) in self._known.dates

    def undated_are_of_now(self) -> None:
        """Of a feed: an entry that has come is news, with a date or without."""
        if not self._known.is_first:
            for address, news in self._news.items():
                if news.observed_at is None:
                    self._news[address] = news._replace(signals=True)


def _hash_of(url: str) -> int:
    return xxhash.xxh3_64_intdigest(url.encode("utf-8", "surrogatepass"))
