"""What goes over the broker meanwhile: requests, outcomes, signals, and what could not be taken."""

from collections import Counter
from typing import Final

from aiokafka import TopicPartition

from shared.contracts.codec import decode
from shared.contracts.messages import CrawlOutcome, CrawlRequest, Signal
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS, DEAD_LETTERS, SIGNALS
from shared.runtime.kafka import make_consumer, partitions_of
from shared.runtime.settings import Settings

_TOPICS: Final = (CRAWL_REQUESTS, CRAWL_OUTCOMES, SIGNALS, DEAD_LETTERS)
_WAIT_MS: Final = 200
_OF_SITES: Final = "site:"


class Tally:
    """Counts for as long as it is let, from the beginning of each topic on."""

    def __init__(self, settings: Settings) -> None:
        self.requests: Counter[str] = Counter()
        """By id: each once."""
        self.answers: Counter[str] = Counter()
        """Outcomes, by the id of their request."""
        self.results: Counter[str] = Counter()
        """Outcomes, by what they say: a result, or `content`, to be compared by its digest."""
        self.signals: Counter[str] = Counter()
        """By source; those of sitemaps and feeds together."""
        self.dead_letters = 0
        self._settings = settings
        self._consumer = make_consumer(settings)
        self._names = {settings.topic(topic.name): topic for topic in _TOPICS}

    @property
    def in_flight(self) -> int:
        """Requests that nobody has answered."""
        return len(self.requests.keys() - self.answers.keys())

    @property
    def answered_twice(self) -> int:
        """Requests with more than one outcome."""
        return sum(count > 1 for count in self.answers.values())

    async def start(self) -> None:
        """Connect."""
        await self._consumer.start()
        self._consumer.assign(
            [
                TopicPartition(self._settings.topic(topic.name), number)
                for topic in _TOPICS
                for number in range(partitions_of(topic, self._settings))
            ]
        )

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def run(self) -> None:
        """Count."""
        while True:
            for place, records in (await self._consumer.getmany(timeout_ms=_WAIT_MS)).items():
                for record in records:
                    self._count(place.topic, record.value)

    def _count(self, topic: str, value: bytes) -> None:
        kind = self._names[topic]
        if kind is CRAWL_REQUESTS:
            self.requests[decode(CrawlRequest, value).request_id] += 1
        elif kind is CRAWL_OUTCOMES:
            outcome = decode(CrawlOutcome, value)
            self.answers[outcome.request_id or ""] += 1
            self.results[outcome.result or "content"] += 1
        elif kind is SIGNALS:
            source = decode(Signal, value).source
            self.signals["sitemaps and feeds" if source.startswith(_OF_SITES) else source] += 1
        else:
            self.dead_letters += 1
