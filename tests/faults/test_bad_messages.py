"""Bad messages of every kind on every topic of a running system: set aside, or harmless.

A whole system runs as `freshet run` starts it, and crawls at its budget while the
messages are written. Each is a dead letter with where it came from, who refused it and why, or is
harmless by a rule that stands beside it (`bad_messages.Injection.rule`). No worker is restarted.
The run's own result is checked on the records: every request is answered, the budget is held, and
the pages in Postgres are what the good outcomes say. Two runs never crawl at the very same moments,
so a run is compared with its own records and not with another run.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from apache import need_apache_kafka
from ledger import Ledger, settled
from live_run import PAGES, LiveRun, live_run, raw_producer

from services.verify.bad_messages import Injection, Template, template_for_host
from services.verify.poison import Sent, write
from services.verify.records import read_topic
from services.verify.templates import (
    NEW_URL,
    misplaced,
    refused_by_meaning,
    spoilt,
    templates,
)
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    DEMAND_CURVES,
    MULTIPLIERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
)
from shared.runtime.settings import Settings

EXTRA = {"unknown_field": {"deep": [1, None]}, "another": "x"}


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


def odd_dead_letters() -> Iterator[Injection]:
    """Dead letters may be anything: they are for people, and whoever shows them copes."""
    good = Template(DEAD_LETTERS, {}, None, 0)
    rule = "only people read dead letters"
    yield good.harmless("no headers", rule, b"\xff")
    yield good.harmless("tombstone", rule, None)
    yield good.harmless(
        "null and broken headers", rule, b"x", headers=(("topic", None), ("error", b"\xff"))
    )


async def injections(settings: Settings, now: float) -> list[Injection]:
    """All of them."""
    good = await templates(settings, now)
    return [
        *spoilt(good),
        *refused_by_meaning(good, settings.partitions),
        *misplaced(good, settings.partitions),
        *harmless(good),
        *with_unknown_fields(good),
        *odd_dead_letters(),
    ]


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


@pytest.mark.slow(30)
@pytest.mark.postgres
@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["local", pytest.param("apache", marks=pytest.mark.long)])
async def test_bad_messages_change_nothing(system_dir: Path, kind: str) -> None:
    if kind == "apache":
        need_apache_kafka()
    async with live_run(system_dir, kind, "--seed", "7") as run:
        settings = run.settings
        clock = settings.clock()
        async with raw_producer(settings) as producer:
            all_ = await injections(settings, clock.now())
            first, refused = await write(producer, settings, all_)
            assert all(one.topic.compacted and one.key is None for one, _ in refused)
            assert all(isinstance(error, KafkaError) for _, error in refused)
            await run.back_at_its_budget()
            # Once more, when everything has gone on: out of order now, all of it.
            again = [one for one in first.values() if not one.rule]
            sent = first | (await write(producer, settings, again[::-1]))[0]
            await run.back_at_its_budget()
        await settled(run)
        ledger = await Ledger.of(run)
        letters = await read_topic(settings, DEAD_LETTERS)
        report = await asyncio.to_thread(run.end)
    restarted = [name for name, count in report["restarts"].items() if count]
    assert restarted == [], "\n".join(run.log(name)[-8000:] for name in restarted)
    check_letters(letters, sent)
    await check_result(run, ledger, clock.now())
