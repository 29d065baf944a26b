"""Where a record counts while shards grow: in the shard that had its host when it was applied.

A record that came on the partition of another shard of the family is passed on: it does not count
there, but where its copy is applied, once.
"""

from typing import Final

from aiokafka import ConsumerRecord

from services.verify.simulation.facts import Facts, url_of
from shared.contracts.identity import BadUrl, identify
from shared.contracts.layout import Layout
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES

_ABOUT_PAGES: Final = frozenset(t.name for t in (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES))


def is_passed_on(facts: Facts, record: ConsumerRecord) -> bool:
    """Whether a record counts elsewhere."""
    database = facts.database
    if not database.splits_done or record.topic not in _ABOUT_PAGES:
        return False
    try:
        host = identify(url_of(record) or "").host
    except BadUrl:
        return False
    then, number = Layout.of(database.layout.counts[0]), record.partition
    for split in database.splits_done:
        if number in split.family and record.offset >= split.applied.get((record.topic, number), 0):
            then = split.layout
    return then.is_near(host, number) and then.shard_of(host) != number


def overtaken(facts: Facts) -> set[str]:
    """URLs of pages of which other messages came while one was passed on: what was passed on counts
    after them, or with them, and nobody knows which."""
    spans: dict[tuple[str, str, bytes], list[float]] = {}
    moved: set[tuple[str, str, bytes]] = set()
    for topic in _ABOUT_PAGES:
        for log in facts.broker.topics[topic]:
            for record, at in log.history():
                message = (url_of(record) or "", topic, record.value)
                spans.setdefault(message, []).append(at)
                if is_passed_on(facts, record):
                    moved.add(message)
    of_page: dict[str, list[tuple[str, str, bytes]]] = {}
    for message in spans:
        of_page.setdefault(message[0], []).append(message)
    return {
        one[0]
        for one in moved
        for other in of_page[one[0]]
        if other != one and any(min(spans[one]) <= at <= max(spans[one]) for at in spans[other])
    }
