"""What links a batch of records has. Pure, with the time as an argument."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka import ConsumerRecord

from shared.contracts.codec import BadMessage, decode
from shared.contracts.identity import BadUrl, identify
from shared.contracts.messages import CrawlOutcome, Discovery
from shared.contracts.topics import CRAWL_OUTCOMES, DISCOVERIES
from shared.discovery.admission import Link

_LEADS: Final = re.compile(rb'"(?:redirected_to|canonical_url)"\s*:\s*"')
"""Few outcomes say where else to look, and there are thousands a second: the others are not read.
Who writes these names with escapes in them is not understood."""

NO_DEPTH: Final = 0
"""Of what is no link: where a page has moved to is no further away than it was itself."""

Refused = tuple[ConsumerRecord, str]
"""A record, and why it is refused."""


@dataclass(slots=True)
class Taken:
    """What a batch says."""

    links: dict[str, Link] = field(default_factory=dict)
    """By URL as it is written, each once: by its shortest way, at the first time."""
    read: dict[str, int] = field(default_factory=dict)
    """Topic (without prefix) → links, repeated ones too."""
    messages: int = 0
    """Of `discoveries`, bad ones too."""
    refused: list[Refused] = field(default_factory=list)
    """Bad ones. Those of `crawl-outcomes` are set aside by the workers that they are for."""

    def add(self, topic: str, url: str, depth: int | None, found_at: float) -> None:
        """Take a link."""
        self.read[topic] = self.read.get(topic, 0) + 1
        before = self.links.get(url)
        if before is not None:
            depths = [d for d in (before.depth, depth) if d is not None]
            depth = min(depths, default=None)
            found_at = min(before.found_at, found_at)
        self.links[url] = Link(url, depth, found_at)


def take(
    records: Sequence[ConsumerRecord], outcomes: str, now: float, *, record_times_count: bool
) -> Taken:
    """The links of a batch.

    Args:
        records: of `discoveries` and `crawl-outcomes`, in order.
        outcomes: what the latter is called on this cluster.
        now: clock seconds.
        record_times_count: whether the records' own times are the clock's.
    """
    taken = Taken()
    for record in records:
        stamped = record_times_count and record.timestamp >= 0
        # One of the future would hold back what operators say of the page until then.
        arrived_at = min(record.timestamp / 1000, now) if stamped else now
        if record.topic == outcomes:
            _take_outcome(taken, record.value, arrived_at)
            continue
        taken.messages += 1
        try:
            _take_discovery(taken, record.value, arrived_at)
        except BadMessage as error:
            taken.refused.append((record, str(error)))
    return taken


def _take_discovery(taken: Taken, value: bytes | None, arrived_at: float) -> None:
    found = decode(Discovery, value)
    try:
        identify(found.url)
    except BadUrl as error:
        raise BadMessage(f"`url`, the page that links: {error}") from error
    found_at = arrived_at if found.found_at is None else min(found.found_at, arrived_at)
    depth = None if found.depth is None else found.depth + 1
    for url in found.links:
        taken.add(DISCOVERIES.name, url, depth, found_at)


def _take_outcome(taken: Taken, value: bytes | None, arrived_at: float) -> None:
    """Take where an outcome leads. One that is bad is set aside by those whom it is for."""
    if value is None or _LEADS.search(value) is None:
        return
    try:
        outcome = decode(CrawlOutcome, value)
    except BadMessage:
        return
    for url in (outcome.redirected_to, outcome.canonical_url):
        if url is not None:
            taken.add(CRAWL_OUTCOMES.name, url, NO_DEPTH, arrived_at)
