"""What a shard that was just loaded knows of requests, beside what stands on the topics.

A request is answered where its answer stands on the shard's partition and its page knows of that
crawl, or of a later one, whatever the crawler's clock said. And no more requests of a page count as
unanswered than were made of it since its last crawl.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.recovery import partitions_of
from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.rows import NEVER
from services.scheduler.state.shard import Shard
from services.verify.checks.finding import MOST_EXAMPLES, Finding
from services.verify.records import decoded
from services.verify.simulation.kafka.broker import Broker, Partition
from services.verify.simulation.replacing import instead
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.contracts.request_ids import requested_us_of
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS

_Open: TypeAlias = tuple[int, Any, float]
"""Row of a page, its attempt, and when it was last tried."""


@dataclass(slots=True)
class Loads:
    """What was found."""

    in_flight: int = 0
    """Requests that were looked at."""
    wrong: int = 0
    examples: list[str] = field(default_factory=list)

    def finding(self) -> Finding:
        """As a check."""
        what = "no request is in flight in a shard that is loaded with its answer, nor counts twice"
        return Finding("loads", what, self.wrong, self.in_flight, self.examples)

    def look(self, shard: Shard, log: Partition, asked_on: Sequence[Partition]) -> None:
        """Look at a shard, as it was loaded.

        Args:
            shard: which.
            log: its partition of outcomes.
            asked_on: the partitions of requests for its pages.
        """
        attempts = list(_open_attempts(shard))
        self._look_at_answers(shard, attempts, log)
        self._look_at_counts(shard, attempts, asked_on)

    def _look_at_answers(self, shard: Shard, attempts: Sequence[_Open], log: Partition) -> None:
        waiting = {
            (shard.url_of(row), int(attempt["requested_us"])): last
            for row, attempt, last in attempts
        }
        self.in_flight += len(waiting)
        for _, outcome in decoded(CrawlOutcome, log.records):
            asked = outcome.url, requested_us_of(outcome.request_id)
            if outcome.crawled_at <= waiting.get(asked, NEVER):
                self._note(f"shard {shard.number}: {asked[0]}, asked for at {asked[1]}")

    def _look_at_counts(
        self, shard: Shard, attempts: Sequence[_Open], asked_on: Sequence[Partition]
    ) -> None:
        asked = defaultdict(set)
        for log in asked_on:
            for _, request in decoded(CrawlRequest, [record for record, _ in log.history()]):
                asked[request.url].add(request.requested_at)
        for row, attempt, last in attempts:
            url, count = shard.url_of(row), int(attempt["unanswered"]) + 1
            made = sum(at > last for at in asked[url])
            if count > made:
                self._note(f"shard {shard.number}: {url}, {count} of {made} requests unanswered")

    def _note(self, example: str) -> None:
        self.wrong += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(example)


def _open_attempts(shard: Shard) -> Iterator[_Open]:
    """Pages in flight: the row, the attempt, and when the page was last tried, as known there."""
    for row, page in enumerate(shard.pages[: shard.used]):
        attempt = shard.attempts.rows[page["attempt"]]
        if page["attempt"] != NO_ATTEMPT and attempt["deadline"] > NEVER:
            yield row, attempt, max(page["last_crawled_at"], attempt["last_attempt_at"])


@contextmanager
def every_load_looked_at(loads: Loads, broker: Broker) -> Iterator[None]:
    """Look at each shard that a scheduler loads for as long as this lasts."""
    load = SchedulerHandler._load  # noqa: SLF001

    async def load_and_look(self: SchedulerHandler, database: Any, partitions: set[int]) -> Any:
        positions = await load(self, database, partitions)
        for number in sorted(partitions & self.shards.keys()):
            shard = self.shards[number]
            asked_on = [
                broker.partition(CRAWL_REQUESTS.name, one)
                for one in sorted(partitions_of({number}, shard.layout))
            ]
            loads.look(shard, broker.partition(CRAWL_OUTCOMES.name, number), asked_on)
        return positions

    with instead(SchedulerHandler, "_load", load_and_look):
        yield
