"""Faults of workers and of the command while the number of shards grows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from services.estimator.announcing import KafkaAnnouncer
from services.scheduler.flow import handler, pacer
from services.scheduler.flow.splitting import SplitWatch
from services.scheduler.state.shard import Shard
from services.verify.mutants.mutant import Planted, Promise, breaks, does_nothing
from services.verify.simulation.replacing import instead
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlRequest
from shared.store import growth, splitting


@breaks(Promise.GROWN, "growth")
def not_passed_on() -> Planted:
    """What comes on the partition of before is taken for done, and passed on to nobody."""

    async def pass_on(*_: Any) -> None:
        """Leave it out."""

    return instead(KafkaAnnouncer, "pass_on", pass_on)


@breaks(Promise.GROWN, "growth")
def picked_while_split() -> Planted:
    """A scheduler says that it has stopped picking pages of a shard, and goes on."""
    return instead(pacer, "_hold", does_nothing)


@breaks(Promise.GROWN, "growth")
def hosts_of_before() -> Planted:
    """A scheduler goes on with the hosts that its shards had before they were split."""
    return instead(SplitWatch, "_reload_others", does_nothing)


@breaks(Promise.GROWN, "growth")
def asked_on_the_parent_forgotten() -> Planted:
    """Who loads a shard that was split looks for requests on its own partition alone."""

    def requests_of(shard: Shard, found: Mapping[int, list[CrawlRequest]]) -> list[CrawlRequest]:
        return found[shard.number]

    return instead(handler, "requests_of", requests_of)


@breaks(Promise.GROWN, "growth")
def two_growths_ago_is_a_mistake() -> Planted:
    """What is sent by who has heard of neither of two growths is refused."""

    def is_near(self: Layout, host: str, shard: int) -> bool:
        return self.parent_of(self.shard_of(host)) == self.parent_of(shard)

    return instead(Layout, "is_near", is_near)


@breaks(Promise.GROWN, "growth")
def urls_left() -> Planted:
    """URLs of pages that have moved are deleted neither after a split nor in the end."""

    @contextmanager
    def plant() -> Iterator[None]:
        with (
            instead(splitting, "tidy", does_nothing),
            instead(splitting, "_delete_left", does_nothing),
        ):
            yield

    return plant()


@breaks(Promise.GROWN, "growth")
def owners_of_before_may_write() -> Planted:
    """Whoever had a shard before it was split may still commit."""
    return instead(growth, "raise_epochs", does_nothing)
