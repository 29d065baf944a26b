"""A right that an estimator's user has lost is said and waited for, and nothing counts twice."""

import asyncio
import re
import uuid

import psycopg
import pytest
from estimator_world import (
    FEW,
    NOW,
    SHARDS,
    URLS,
    a_day_of_life,
    assert_schedulers_know,
    empty,
    stored,
    upsert,
)
from structlog.testing import capture_logs

from services.estimator.lanes import Lanes
from shared.contracts.databases import Databases
from shared.runtime import retrying
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings
from shared.store import stream_topics
from shared.store.rights import ESTIMATOR
from shared.store.roles import FUNCTIONS, ROLES
from shared.store.stream_topics import StoredTopics

NEEDED = {
    *("deployment", "shard_splits", "shard_owners", "stream_positions", "pages", "hosts"),
    *("observations", "erased_pages", "erased_hosts", "page_classes"),
}
"""Tables that three batches cannot do without; those of URLs only where pages come."""


@pytest.fixture
def owner(migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def of_owner(migrated_url):
    return Settings(database_url=migrated_url, partitions=SHARDS)


@pytest.fixture
def settings(settings, migrated_url, owner, monkeypatch):
    """Those of a worker that logs in as a user who has the estimator's role alone."""
    monkeypatch.setattr(retrying, "LONGEST_WAIT_SECONDS", 0.02)
    user = f"{ESTIMATOR}_{uuid.uuid4().hex[:8]}"
    owner.execute(f"CREATE ROLE {user} LOGIN IN ROLE {ESTIMATOR}")
    url = migrated_url.replace("postgres@", f"{user}@", 1)
    yield settings.model_copy(update={"database_url": type(settings.database_url)(url)})
    owner.execute(f"DROP ROLE {user}")


def take_away(owner):
    """All that an estimator may do."""
    for table in ROLES[ESTIMATOR]:
        owner.execute(f"REVOKE ALL ON {table} FROM {ESTIMATOR}")
    for function in FUNCTIONS[ESTIMATOR]:
        owner.execute(f"REVOKE ALL ON FUNCTION {function} FROM {ESTIMATOR}")
    parts = ", ".join(f"pages_{shard}, page_urls_{shard}" for shard in range(SHARDS))
    owner.execute(f"REVOKE ALL ON {parts} FROM {ESTIMATOR}")


async def until_done(working, trouble, owner):
    """Run what is said to be run, until something is done; what was given."""
    given = set()
    async with asyncio.timeout(60):
        while not working.done():
            for grant in re.findall(r"GRANT [^;]+", trouble() or ""):
                owner.execute(grant)
                given.add(re.search(r" ON (?:FUNCTION )?(\w+)", grant)[1])
            await asyncio.sleep(0.01)
    return given, working.result()


@pytest.mark.slow(2)
@pytest.mark.usefixtures("no_refits")
@pytest.mark.parametrize("most", [FEW, 1000])
async def test_what_to_grant_is_said_until_it_is_there_and_each_batch_counts_once(
    begin, kafka, owner, of_owner, most
):
    batches = a_day_of_life(kafka)
    undisturbed = await begin(kafka, most)
    for batch in batches:
        await undisturbed.handle(batch)
    expected = stored(of_owner)
    empty(of_owner)

    handler, given = await begin(kafka, most), set()
    for batch in batches:
        take_away(owner)
        handling = asyncio.ensure_future(handler.handle(batch))
        granted, left = await until_done(handling, lambda: handler.trouble, owner)
        assert (left, handler.trouble) == (set(), None)
        given |= granted
    assert given >= NEEDED | {"freshet_add_observations"}
    assert stored(of_owner) == expected
    assert_schedulers_know(of_owner, kafka)
    assert kafka.refused == []


async def done_by_and_by(work, trouble, owner):
    """Do something again and again, as who reads does, and give what is said to be missing."""
    given = set()
    async with asyncio.timeout(60):
        while await work():
            more, _ = await until_done(asyncio.ensure_future(asyncio.sleep(0.02)), trouble, owner)
            given |= more
    return given


@pytest.mark.slow(2)
async def test_shards_of_a_database_without_rights_wait_alone(settings, kafka, owner):
    lanes = Lanes(settings, ManualClock(NOW), kafka, asyncio.Event())
    take_away(owner)
    await lanes.open()

    async def load():
        await lanes.assigned(lanes.absent() or set(range(SHARDS)))
        return lanes.absent()

    assert await done_by_and_by(load, lambda: lanes.trouble, owner) >= {"shard_owners", "pages_0"}
    pages = kafka.batch(*map(upsert, URLS))
    take_away(owner)
    given = await done_by_and_by(lambda: lanes.handle(pages), lambda: lanes.trouble, owner)
    assert given >= {"shard_owners", "pages", "page_urls"}
    assert lanes.trouble is None
    await lanes.close()
    assert owner.execute("SELECT count(*) FROM pages").fetchone() == (len(URLS),)


async def test_which_topics_are_known_is_asked_until_the_right_to_is_given(
    settings, owner, monkeypatch
):
    monkeypatch.setattr(stream_topics, "AGAIN_SECONDS", 0.02)
    url = settings.database_url.get_secret_value()
    known = StoredTopics(Databases.alone(url), "estimator", writes=True)
    take_away(owner)
    with capture_logs() as lines:
        asking = asyncio.ensure_future(known.note({"page-updates": "an id"}))
        said = lambda: lines[-1]["error"] if lines else None  # noqa: E731
        given, found = await until_done(asking, said, owner)
    assert (given, found) == ({"stream_topics"}, {"page-updates": "an id"})
