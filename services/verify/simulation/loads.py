"""What is in flight in a shard that was just loaded, beside the answers that it was loaded with.

A request is answered where its answer stands on the shard's partition and its page knows of that
crawl, or of a later one, whatever the crawler's clock said.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.rows import NEVER
from services.scheduler.state.shard import Shard
from services.verify.checks.finding import MOST_EXAMPLES, Finding
from services.verify.records import decoded
from services.verify.simulation.kafka.broker import Broker, Partition
from services.verify.simulation.replacing import instead
from shared.contracts.messages import CrawlOutcome
from shared.contracts.request_ids import requested_us_of
from shared.contracts.topics import CRAWL_OUTCOMES


@dataclass(slots=True)
class Loads:
    """What was found."""

    in_flight: int = 0
    """Requests that were looked at."""
    wrong: int = 0
    examples: list[str] = field(default_factory=list)

    def finding(self) -> Finding:
        """As a check."""
        what = "no request is in flight in a shard that is loaded with its answer"
        return Finding("loads", what, self.wrong, self.in_flight, self.examples)

    def look(self, shard: Shard, log: Partition) -> None:
        """Look at a shard, as it was loaded, and at what stands on its partition of outcomes."""
        waiting = {
            (shard.url_of(row), int(attempt["requested_us"])): last
            for row, attempt, last in _open_attempts(shard)
        }
        self.in_flight += len(waiting)
        for _, outcome in decoded(CrawlOutcome, log.records):
            asked = outcome.url, requested_us_of(outcome.request_id)
            if outcome.crawled_at <= waiting.get(asked, NEVER):
                self.wrong += 1
                if len(self.examples) < MOST_EXAMPLES:
                    self.examples.append(
                        f"shard {shard.number}: {asked[0]}, asked for at {asked[1]}"
                    )


def _open_attempts(shard: Shard) -> Iterator[tuple[int, Any, float]]:
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
            loads.look(self.shards[number], broker.partition(CRAWL_OUTCOMES.name, number))
        return positions

    with instead(SchedulerHandler, "_load", load_and_look):
        yield
