"""The checks of `freshet verify` on what an estimator wrote: right, and spoilt behind its back."""

from types import SimpleNamespace

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, a_day_of_life, crawl, signal
from psycopg import sql

from services.estimator.refitting import Refits
from services.verify import audit
from services.verify.checks import announced, delivery
from services.verify.reference.state import read_state
from services.verify.relearning import differences, in_order_of_time, out_of_order, relearn
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import HostLimit


@pytest.fixture
def beginning_url(settings):
    """The database as it is before the first estimator starts, which is noted from then on."""
    url = settings.database_url.get_secret_value()
    audit.install(url)
    with psycopg.connect(url) as connection:
        name = connection.info.dbname
    copy = f"{name}_beginning"
    with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
        names = map(sql.Identifier, (copy, name))
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    yield psycopg.conninfo.make_conninfo(url, dbname=copy)
    with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(copy)))


class Run:
    """Batches that estimators handled, and what the checks say of them."""

    def __init__(self, settings, beginning_url, kafka):
        self.url = settings.database_url.get_secret_value()
        self.settings = settings
        self.beginning_url = beginning_url
        self.kafka = kafka
        self.records = {
            (topic, shard): []
            for topic in ("crawl-outcomes", "page-signals", "page-updates", "host-limits")
            for shard in range(SHARDS)
        }

    async def handle(self, handler, batch):
        for topic, parts in batch.items():
            for shard, records in parts.items():
                self.records[topic, shard] += records
        await handler.handle(batch)

    def execute(self, statement):
        with psycopg.connect(self.url) as connection:
            assert connection.execute(statement).rowcount >= 1

    def found(self):
        """How many offenders each check finds."""
        transactions, layout = audit.read(self.url), Layout.of(self.settings.partitions)
        relearned = relearn(self.settings, layout, self.beginning_url, transactions, self.records)
        of_pages, of_hosts = differences(read_state(self.url), relearned)
        lost, doubled = delivery.histories(self._ledger(), relearned)
        return {
            "positions": len(relearned.gaps),
            "parameters": len(of_pages),
            "hosts": len(of_hosts),
            "histories": lost.count,
            "histories once": doubled.count,
        }

    def _ledger(self):
        with psycopg.connect(self.url) as connection:
            rows = connection.execute(
                "SELECT page_id, crawled_at, interval_days, signals, changed FROM observations"
            ).fetchall()
        return SimpleNamespace(observations=rows)

    def announcements(self):
        """What the checks of announcements find."""
        stored, owners = read_state(self.url), audit.read_owners(self.url)
        raw = {
            "page-parameters": self._published(self.kafka.announced),
            "host-parameters": self._published(self.kafka.hosts),
        }
        args = SimpleNamespace(raw=raw), stored, owners, self.settings.material_change
        return announced.page_parameters(*args), announced.host_parameters(*args)

    def _published(self, by_shard):
        return [
            SimpleNamespace(value=encode(message), partition=shard)
            for shard, messages in by_shard.items()
            for message in messages
        ]


NOTHING = dict.fromkeys(("positions", "parameters", "hosts", "histories", "histories once"), 0)


@pytest.fixture
async def run(settings, beginning_url, kafka, start):
    """Two estimators, one after the other, and refits of host priors."""
    run = Run(settings, beginning_url, kafka)
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await run.handle(handler, batch)
    for day in range(4, 9):
        await run.handle(
            handler, kafka.batch(*(crawl(url, NOW + day * DAY, "changed") for url in URLS[6:40]))
        )
    handler = await start(kafka)
    await run.handle(handler, kafka.batch(*(signal(url, NOW + 8.5 * DAY) for url in URLS[::3])))
    await run.handle(handler, kafka.batch(*(crawl(url, NOW + 9 * DAY) for url in URLS[6:50])))
    return run


async def test_what_an_estimator_learned_is_what_the_reference_does(run):
    transactions = audit.read(run.url)

    assert run.found() == NOTHING
    assert {one.refitted for one in transactions} == {frozenset(), ALL}
    at = transactions[-1].at
    in_order = in_order_of_time(run.settings, Layout.of(SHARDS), run.beginning_url, at, run.records)
    assert out_of_order(run._ledger().observations, in_order) == 0.0


ALL = frozenset(range(SHARDS))


def a_day(kafka, day, shards, result="changed"):
    """Crawls of all pages of some shards."""
    batch = kafka.batch(*(crawl(url, NOW + day * DAY, result) for url in URLS))
    return {
        topic: {shard: part for shard, part in parts.items() if shard in shards}
        for topic, parts in batch.items()
    }


async def test_of_two_estimators_each_learns_from_its_own_shards(
    settings, beginning_url, kafka, start
):
    run = Run(settings, beginning_url, kafka)
    halves = [set(range(0, SHARDS, 2)), set(range(1, SHARDS, 2))]
    handlers = [await start(kafka, half) for half in halves]
    days = [
        kafka.batch(*(crawl(url, NOW + day * DAY, "changed") for url in URLS))
        for day in range(4, 12)
    ]
    for batch in [*a_day_of_life(kafka)[:1], *days]:
        for handler, half in zip(handlers, halves, strict=True):
            mine = {
                topic: {shard: part for shard, part in parts.items() if shard in half}
                for topic, parts in batch.items()
            }
            await run.handle(handler, {topic: parts for topic, parts in mine.items() if parts})

    refitted = {one.refitted for one in audit.read(run.url)} - {frozenset()}
    assert refitted == set(map(frozenset, halves))
    assert run.found() == NOTHING


async def test_a_shard_that_was_given_up_and_that_nobody_took_yet_is_not_refitted(
    settings, beginning_url, kafka, start
):
    run = Run(settings, beginning_url, kafka)
    handler = await start(kafka)
    for batch in [*a_day_of_life(kafka)[:1], *(a_day(kafka, day, ALL) for day in range(4, 8))]:
        await run.handle(handler, batch)
    await handler.revoked({0})
    handler._refits = Refits(settings.prior_refit_days)  # the next one is due at once
    for day in range(8, 12):
        await run.handle(handler, a_day(kafka, day, ALL - {0}))
    other = await start(kafka, {0})
    await run.handle(other, a_day(kafka, 12, {0}))

    refitted = {one.refitted for one in audit.read(run.url)} - {frozenset()}
    assert {ALL, ALL - {0}} <= refitted
    assert run.found() == NOTHING


@pytest.mark.long
async def test_shards_that_another_takes_right_after_a_refit_were_part_of_it(
    settings, beginning_url, kafka, start
):
    run = Run(settings, beginning_url, kafka)
    handler = await start(kafka)
    for batch in [*a_day_of_life(kafka)[:1], *(a_day(kafka, day, ALL) for day in range(4, 12))]:
        await run.handle(handler, batch)
    of_one = next(url for url in URLS if shard_of(identify(url).host, SHARDS) == 1)
    for day in range(12, 30):
        handler._refits = Refits(settings.prior_refit_days)  # the next one is due at once
        await run.handle(handler, kafka.batch(crawl(of_one, NOW + day * DAY, "unchanged")))
        await start(kafka, ALL - {1})
        handler = await start(kafka)

    refitted = [one.refitted for one in audit.read(run.url)]
    assert set(refitted) == {frozenset(), ALL}
    assert run.found() == NOTHING


@pytest.mark.parametrize(
    ("spoilt", "check"),
    [
        (
            "UPDATE pages SET unsignalled_change_rate = 1.001 * unsignalled_change_rate",
            "parameters",
        ),
        ("UPDATE pages SET signals = signals + 1", "parameters"),
        ("UPDATE pages SET last_crawled_at = last_crawled_at - 1", "parameters"),
        ("UPDATE hosts SET prior_rate = 1.001 * prior_rate", "hosts"),
        ("UPDATE hosts SET asked_until = '-infinity' WHERE asked_until > 0", "hosts"),
        ("UPDATE hosts SET learning = set_byte(learning, 71, 60)", "hosts"),
        ("DELETE FROM observations WHERE changed", "histories"),
        ("INSERT INTO observations SELECT * FROM observations", "histories once"),
    ],
)
async def test_what_was_spoilt_is_found(run, spoilt, check):
    run.execute(spoilt)

    found = run.found()

    assert found[check] >= 1
    assert found == NOTHING | {check: found[check]}


async def test_a_position_that_moved_without_its_records_is_found(run, start, kafka):
    run.execute(
        "UPDATE stream_positions SET next_offset = next_offset + 1 WHERE topic = 'crawl-outcomes'"
    )
    handler = await start(kafka)
    batch = kafka.batch(*(crawl(url, NOW + 10 * DAY) for url in URLS[6:50]))
    skipped = {
        topic: {shard: records[1:] for shard, records in parts.items() if records[1:]}
        for topic, parts in batch.items()
    }
    for shard, records in batch["crawl-outcomes"].items():
        run.records["crawl-outcomes", shard].append(records[0])
    await run.handle(handler, skipped)

    found = run.found()

    assert found["histories"] >= 1
    assert found["parameters"] >= 1


async def test_limits_of_hosts_are_no_refit(settings, beginning_url, kafka, start):
    run = Run(settings, beginning_url, kafka)
    handler = await start(kafka)
    await run.handle(handler, kafka.batch(HostLimit("host-1.example", 3.0)))
    await run.handle(handler, kafka.batch(HostLimit("host-1.example", 4.0)))

    assert [one.refitted for one in audit.read(run.url)] == [frozenset(), frozenset()]
    assert run.found() == NOTHING


async def test_announcements_are_what_the_database_has_though_owners_change(run):
    of_pages, of_hosts = run.announcements()

    assert of_pages.passed, of_pages.examples
    assert of_hosts.passed, of_hosts.examples
    assert min(of_pages.looked_at, of_hosts.looked_at) > 5


async def test_an_announcement_that_never_came_is_found(run):
    for messages in run.kafka.announced.values():
        del messages[:]

    assert run.announcements()[0].count > 5
