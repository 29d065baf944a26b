"""Requests for a crawler that is not ours, and the outcomes that it sends."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from contextlib import asynccontextmanager, contextmanager

import pytest
from apache import need_apache_kafka
from workers import TopicReader, reader, settings_for

from deploy.docs.places import TOP
from deploy.local.java import resolve_jars
from shared.contracts.codec import decode, encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.tracing import Mark, marks_of

CLIENT = TOP / "clients" / "scrapy-freshet"
EXAMPLES = TOP / "clients" / "examples"


class Desk:
    """Asks for pages, and looks at the answers."""

    def __init__(self, settings, publisher: Publisher, answers: TopicReader) -> None:
        self.settings = settings
        self._publisher = publisher
        self._answers = answers

    async def ask(
        self, url: str, host: str, *, seconds: float = 120.0, trace: Mark | None = None
    ) -> str:
        """Ask for a page; returns the request's id."""
        now = time.time()
        request_id = uuid.uuid4().hex
        request = CrawlRequest(request_id, 1, url, host, now, now + seconds, 1.0, 1.0, "value")
        headers = trace.headers() if trace is not None else ()
        shard = shard_of(host, self.settings.partitions)
        await self._publisher.send(
            CRAWL_REQUESTS, host.encode(), encode(request), partition=shard, headers=headers
        )
        await self._publisher.flush()
        return request_id

    def traces(self) -> dict[str, Mark]:
        """Request → what its outcome says of its trace, of those that say something."""
        records = self._answers.records
        return {
            decode(CrawlOutcome, records[place].value).request_id or "": mark
            for place, mark in marks_of(records)
        }

    async def outcomes(self, count: int) -> dict[str, CrawlOutcome]:
        """Request → outcome, when so many are there: no more, none twice, each on its shard."""
        records = await self._answers.until(lambda got: len(got) >= count)
        outcomes = [decode(CrawlOutcome, record.value) for record in records]
        by_request = {outcome.request_id or "": outcome for outcome in outcomes}
        assert len(outcomes) == len(by_request) == count
        shards = self.settings.partitions
        for record, outcome in zip(records, outcomes, strict=True):
            assert record.partition == shard_of(outcome.host, shards), "not keyed by its host"
        return by_request


@asynccontextmanager
async def desk(bootstrap_servers: str):
    """A desk with topics of its own."""
    settings = settings_for(bootstrap_servers, f"fleet-{uuid.uuid4().hex[:8]}")
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        async with reader(settings, CRAWL_OUTCOMES) as answers:
            yield Desk(settings, publisher, answers)
    finally:
        await publisher.stop()


def command_of(example):
    """What runs an example; what it needs is there, or the test is skipped."""
    if example in {"python", "crawlee"}:
        return [sys.executable, EXAMPLES / example / "crawler.py"]
    if example == "java":
        need_apache_kafka()
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{resolve_jars()}/*"]
        return [*java, EXAMPLES / "java" / "Crawler.java"]
    missing = [name for name in ("kcat", "curl", "jq") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    return [EXAMPLES / "shell" / "crawler.sh"]


@contextmanager
def crawler(command, settings, log, **more):
    """A crawler's process, told by its environment where Kafka is; it is stopped at the end."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FRESHET_")}
    environment |= {
        "PYTHONPATH": f"{CLIENT}:{TOP}",
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "FRESHET_TOPIC_PREFIX": settings.topic_prefix,
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment | more, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
