"""Bad messages of every kind on every topic of a running system: set aside, or harmless.

A whole system runs as `freshet run` starts it, on both brokers, and crawls at its budget while the
messages are written. Each is a dead letter with where it came from, who refused it and why, or is
harmless by a rule that stands beside it (`bad_messages.Injection.rule`). No worker is restarted.
The run's own result is checked on the records: every request is answered, the budget is held, and
the pages in Postgres are what the good outcomes say. Two runs never crawl at the very same moments,
so a run is compared with its own records and not with another run.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from bad_messages import (
    Injection,
    Template,
    odd_dead_letters,
    template_for_host,
    unreadable,
    wrong_fields,
    wrong_times,
)
from ledger import Ledger, read_topic, settled
from live_run import PAGES, LiveRun, live_run, raw_producer, why_not

from shared.contracts.identity import identify
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    DEMAND_CURVES,
    GLOBAL_KEY,
    HOST_LIMITS,
    MULTIPLIERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
    Topic,
)
from shared.runtime.settings import Settings

UNKNOWN_URL = "https://h0.example/nobody-knows"
NEW_URL = "https://h1.example/new"
QUIET_HOST = "quiet.example"
"""A host without pages."""
EXTRA = {"unknown_field": {"deep": [1, None]}, "another": "x"}

Sent = dict[tuple[str, int, int], Injection]
"""Topic, partition and offset of what was written."""


async def last_message(settings: Settings, topic: Topic) -> dict[str, Any]:
    """The last good message that the system wrote itself."""
    records = await read_topic(settings, topic)
    return json.loads(max(records, key=lambda record: record.timestamp).value)


async def templates(settings: Settings, now: float) -> dict[str, Template]:
    """A good message of every topic."""
    shards, unknown_id = settings.partitions, identify(UNKNOWN_URL).page_id
    unknown = {"url": UNKNOWN_URL, "host": identify(UNKNOWN_URL).host}
    request = await last_message(settings, CRAWL_REQUESTS)
    outcome = await last_message(settings, CRAWL_OUTCOMES)
    made = [
        Template(SIGNALS, {"url": UNKNOWN_URL, "source": "test", "observed_at": now}, None, 0),
        template_for_host(
            *(PAGE_SIGNALS, UNKNOWN_URL, shards),
            **unknown,
            page_id=unknown_id,
            source="test",
            observed_at=now,
        ),
        template_for_host(CRAWL_REQUESTS, request["url"], shards, **request),
        template_for_host(CRAWL_OUTCOMES, outcome["url"], shards, **outcome),
        template_for_host(
            *(PAGE_UPDATES, NEW_URL, shards), op="upsert", url=NEW_URL, importance=3, updated_at=now
        ),
        template_for_host(
            *(PAGE_PARAMETERS, UNKNOWN_URL, shards),
            host=unknown["host"],
            page_id=unknown_id,
            unsignalled_change_rate=0.1,
            signal_evidence=1.0,
            signal_rate=0.1,
            updated_at=now,
        ),
        template_for_host(
            *(HOST_LIMITS, f"https://{QUIET_HOST}/", shards),
            host=QUIET_HOST,
            max_crawls_per_second=2.0,
        ),
    ]
    made += [
        Template(topic, await last_message(settings, topic), GLOBAL_KEY, 0)
        for topic in (BANDWIDTH, DEMAND_CURVES, MULTIPLIERS)
    ]
    return {good.topic.name: good for good in made}


def misplaced(good: dict[str, Template], shards: int) -> list[Injection]:
    """Records on another shard than their host's."""

    def elsewhere(topic: Topic) -> dict[str, int]:
        return {"partition": (good[topic.name].partition + 1) % shards}

    found = [
        good[topic.name].bad("wrong partition", good[topic.name].changed(), **elsewhere(topic))
        for topic in (PAGE_SIGNALS, CRAWL_OUTCOMES, HOST_LIMITS)
    ]
    rule = "a shard knows its own pages only"
    parameters = good[PAGE_PARAMETERS.name]
    return [
        *found,
        parameters.harmless("elsewhere", rule, parameters.changed(), **elsewhere(PAGE_PARAMETERS)),
    ]


def refused_by_meaning(good: dict[str, Template]) -> list[Injection]:
    """What is well formed, but cannot be."""
    signal, outcome, update = good[SIGNALS.name], good[CRAWL_OUTCOMES.name], good[PAGE_UPDATES.name]
    demand, unknown_shard = good[DEMAND_CURVES.name], {"shard": 30_000}
    unknown = template_for_host(
        *(CRAWL_OUTCOMES, UNKNOWN_URL, 4),
        **(outcome.message | {"url": UNKNOWN_URL, "host": "h0.example", "request_id": None}),
    )
    return [
        wrong_times(signal, "observed_at"),
        signal.bad("very old", signal.changed(observed_at=1)),
        signal.bad("private host", signal.changed(url="http://10.0.0.1/")),
        unknown.bad("unknown page", unknown.changed()),
        wrong_times(demand, "reported_at"),
        demand.bad("unknown shard", demand.changed(**unknown_shard)),
        demand.bad("lists that do not match", demand.changed(ripe=[1.0])),
        demand.bad(
            "thresholds that fall", demand.changed(thresholds=demand.message["thresholds"][::-1])
        ),
        demand.bad("NaN in a list", demand.changed(demand=[float("nan")] * 3)),
        good[MULTIPLIERS.name].bad(
            "a share above 1", good[MULTIPLIERS.name].changed(allotments=[{"shard": 0, "share": 7}])
        ),
        update.bad("unknown operation", update.changed(op="destroy")),
    ]


def harmless(good: dict[str, Template]) -> list[Injection]:
    """What is taken and changes nothing."""
    repeats = "repeats and late messages are known by their times, ids or versions"
    found = [
        good[topic.name].harmless("repeated", repeats, good[topic.name].changed(), key=key)
        for topic in (CRAWL_OUTCOMES, MULTIPLIERS, DEMAND_CURVES, BANDWIDTH)
        for key in (good[topic.name].key, None)
    ]
    outcome, signal = good[CRAWL_OUTCOMES.name], good[PAGE_SIGNALS.name]
    request, update = good[CRAWL_REQUESTS.name], good[PAGE_UPDATES.name]
    known = update.message | {"url": PAGES[1]}
    old = template_for_host(PAGE_UPDATES, PAGES[1], 4, **known)
    return [
        *found,
        outcome.harmless("very old", repeats, outcome.changed(crawled_at=1.0, request_id=None)),
        signal.harmless("unknown page", "unknown pages are counted", signal.changed()),
        signal.harmless("very old", repeats, signal.changed(observed_at=1)),
        old.harmless("very old", repeats, old.changed(updated_at=1.0, importance=99.0)),
        old.harmless("removal, very old", repeats, old.changed(op="remove", updated_at=1.0)),
        request.harmless("repeated", "the fleet may crawl a page twice", request.changed()),
        request.harmless(
            "huge numbers", "for information", request.changed(crawl_value=1e300, threshold=1e300)
        ),
        good[SIGNALS.name].harmless(
            "unknown page", "unknown pages are counted", good[SIGNALS.name].changed()
        ),
    ]


def with_unknown_fields(good: dict[str, Template]) -> list[Injection]:
    """Good messages of a newer producer."""
    return [
        template.harmless("unknown fields", "unknown fields pass", template.changed(**EXTRA))
        for template in good.values()
    ]


async def injections(settings: Settings, now: float) -> list[Injection]:
    """All of them."""
    good = await templates(settings, now)
    spoilt = [bad for one in good.values() for bad in (*unreadable(one), *wrong_fields(one))]
    return [
        *spoilt,
        *refused_by_meaning(good),
        *misplaced(good, settings.partitions),
        *harmless(good),
        *with_unknown_fields(good),
        *odd_dead_letters(),
    ]


async def write(producer: AIOKafkaProducer, settings: Settings, all_: list[Injection]) -> Sent:
    """Write records, and note where they stand."""
    futures = []
    for one in all_:
        # A batch each: `send` refuses a record without key and value, which other clients write.
        batch = producer.create_batch()
        batch.append(timestamp=None, key=one.key, value=one.value, headers=list(one.headers))
        name = settings.topic(one.topic.name)
        futures.append(await producer.send_batch(batch, name, partition=one.partition))
    places = await asyncio.gather(*futures, return_exceptions=True)
    sent = {}
    for place, one in zip(places, all_, strict=True):
        if one.topic.compacted and one.key is None:
            assert isinstance(place, KafkaError), "brokers refuse this themselves"
        else:
            sent[place.topic, place.partition, place.offset] = one
    return sent


def check_letters(letters: list[Any], sent: Sent) -> None:
    """Every bad record is a dead letter that says why; no other is one."""
    found = {}
    for letter in letters:
        headers = dict(letter.headers)
        if {"topic", "partition", "offset", "stage", "error"} <= headers.keys():
            place = (headers["topic"].decode(), int(headers["partition"]), int(headers["offset"]))
            found[place] = (headers["stage"].decode(), headers["error"].decode(), letter.value)
    missing = [one for place, one in sent.items() if one.stage and place not in found]
    assert missing == []
    surprising = [(place, f) for place, f in found.items() if place not in sent]
    assert surprising == []
    for place, (stage, error, value) in found.items():
        assert stage == sent[place].stage, (sent[place].what, sent[place].topic.name, error)
        assert error, sent[place]
        assert (sent[place].value or b"").startswith(value or b"")


async def check_result(run: LiveRun, ledger: Ledger, latest: float) -> None:
    """The run's own result is what it would be without the bad messages."""
    assert ledger.crawls_not_applied_once(latest) == []
    assert ledger.in_flight_twice() == []
    assert ledger.unanswered() == []
    assert ledger.seconds_over_budget() == {}
    assert ledger.on_wrong_partitions() == []
    assert ledger.signals_lost() == set()
    importance = {page.url: page.importance for page in ledger.pages.values()}
    assert importance == {url: 1 + n % 5 for n, url in enumerate(PAGES)} | {NEW_URL: 3}
    assert {request.url for _, request in ledger.requests} <= importance.keys()
    for name in ("coordinator", "estimator", "ingester", "scheduler", "world"):
        assert "Traceback" not in run.log(name)


@pytest.mark.parametrize("broker", ["local", "apache"])
async def test_bad_messages_change_nothing(tmp_path: Path, broker: str) -> None:
    reason = why_not(broker)
    if reason is not None:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")
    async with live_run(tmp_path, broker, "--seed", "7") as run:
        settings = run.settings
        clock = settings.clock()
        async with raw_producer(settings) as producer:
            first = await write(producer, settings, await injections(settings, clock.now()))
            await run.back_at_its_budget()
            # Once more, when everything has gone on: out of order now, all of it.
            again = [one for one in first.values() if not one.rule]
            sent = first | await write(producer, settings, again[::-1])
            await run.back_at_its_budget()
        await settled(run)
        ledger = await Ledger.of(run)
        letters = await read_topic(settings, DEAD_LETTERS)
        report = await asyncio.to_thread(run.end)
    assert sum(report["restarts"].values()) == 0
    check_letters(letters, sent)
    await check_result(run, ledger, clock.now())
