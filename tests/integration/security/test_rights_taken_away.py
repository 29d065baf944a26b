"""A right that a scheduler's user has lost is said, and waited for: nothing else stops for it."""

import asyncio
import re
import uuid
from types import SimpleNamespace

import numpy as np
import psycopg
import pytest
from structlog.testing import capture_logs
from workers import settings_for

from services.scheduler.flow import imported, splitting, unanswered_pages
from services.scheduler.flow.handler import SchedulerHandler
from shared.runtime.clock import SystemClock
from shared.store.columns import UnansweredNews, UnansweredPages
from shared.store.connection import connect
from shared.store.last_imports import NO_IMPORT
from shared.store.layout import read_layout
from shared.store.questions import Questions
from shared.store.rights import SCHEDULER
from shared.store.splits import take_over
from shared.store.unanswered import read_unanswered

pytestmark = pytest.mark.postgres

LOOKS = (imported, splitting, unanswered_pages)
PAGE = UnansweredPages(np.array([7]), np.ones(1, np.int16), *(np.ones(1) for _ in range(3)))
NEWS = UnansweredNews(0, "claim", PAGE, np.array([], np.int64))


@pytest.fixture
def settings(migrated_url):
    """Those of a worker that logs in as a user who has the scheduler's role alone."""
    user = f"{SCHEDULER}_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(migrated_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {user} LOGIN IN ROLE {SCHEDULER}")
    made = settings_for("127.0.0.1:1", "rights", partitions=4)
    url = migrated_url.replace("postgres@", f"{user}@", 1)
    yield made.model_copy(update={"database_url": type(made.database_url)(url)})
    with psycopg.connect(migrated_url, autocommit=True) as owner:
        owner.execute(f"DROP ROLE {user}")


class Inline:
    """The shards' thread, at once."""

    async def run(self, work, *given):
        return work(*given)


class SilentShard:
    """One of which a page is not answered, until that is written down."""

    number, imported, is_caught_up, is_held = 0, NO_IMPORT, True, False
    layout = SimpleNamespace(modulus_of=lambda _number: 4)
    classes = SimpleNamespace(take_left_out=list)

    def __init__(self):
        left = [NEWS]
        self.unanswered = SimpleNamespace(
            news=lambda _until: next(iter(left), None), told=left.clear
        )


def loops(settings, stopping):
    """What a scheduler asks the database beside picking."""
    shards, layouts = {0: SilentShard()}, []
    watches = [
        imported.ImportWatch(settings, Inline(), lambda: shards),
        splitting.SplitWatch(settings, Inline(), lambda: shards, None, None, layouts.append),
        unanswered_pages.UnansweredWriter(
            settings, Inline(), lambda: shards, SystemClock(), lambda: np.inf
        ),
    ]
    return [watch.run(stopping) for watch in watches], layouts


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("never")


async def test_a_right_is_said_with_what_to_grant_and_waited_for(
    settings, migrated_url, monkeypatch
):
    for module in LOOKS:
        monkeypatch.setattr(module, "EVERY_SECONDS", 0.05)
    tables = {"page_imports", "shard_splits", "unanswered_pages"}
    with connect(migrated_url, "test", autocommit=True) as owner, capture_logs() as lines:
        take_over(owner, [0], NEWS.claim)
        for table in tables:
            owner.execute(f"REVOKE ALL ON {table} FROM {SCHEDULER}")
        stopping = asyncio.Event()
        running, layouts = loops(settings, stopping)
        tasks = [asyncio.create_task(loop) for loop in running]

        def said():
            errors = [line["error"] for line in lines if "cannot be asked" in line["event"]]
            return [grant for error in errors for grant in re.findall(r"GRANT [^;]+", error)]

        await until(lambda: len(said()) == 3 or any(task.done() for task in tasks))
        assert not any(task.done() for task in tasks)
        assert layouts == []
        for grant in said():
            owner.execute(grant)
        await until(lambda: layouts and read_unanswered(owner, 0).page_ids.tolist() == [7])
        stopping.set()
        await asyncio.gather(*tasks)
    assert len(said()) == 3  # each once


async def test_whoever_asks_is_told_what_to_grant(settings, migrated_url):
    """Discoverers, pollers, receivers and the frontier, who ask now and then."""
    questions = Questions(settings.database_url.get_secret_value(), "scheduler")
    with connect(migrated_url, "test", autocommit=True) as owner:
        owner.execute(f"REVOKE ALL ON shard_splits FROM {SCHEDULER}")
        with pytest.raises(psycopg.Error) as refused:
            await questions.ask(read_layout)
        [grant] = re.findall(r"GRANT [^;]+", str(refused.value))
        owner.execute(grant)
    assert (await questions.ask(read_layout)).shards == 4
    questions.stop()


async def test_shards_are_loaded_once_the_right_to_is_given(settings, migrated_url, monkeypatch):
    handler = SchedulerHandler(settings, SystemClock(), None, Inline())
    """Also where it is another statement, in the same transaction, that is told first."""
    # Of Kafka there is nothing to be read.
    monkeypatch.setattr(
        "services.scheduler.flow.handler.read_recent_requests",
        lambda *_: asyncio.sleep(0, {0: [], 1: []}),
    )
    monkeypatch.setattr(handler, "_bounds", lambda _: asyncio.sleep(0, ({}, {})))
    with connect(migrated_url, "test", autocommit=True) as owner:
        owner.execute(f"REVOKE SELECT ON hosts FROM {SCHEDULER}")
        loading = asyncio.create_task(handler.assigned({0, 1}))
        await until(lambda: handler.trouble is not None or loading.done())
        assert not loading.done()
        [grant] = re.findall(r"GRANT [^;]+", handler.trouble)
        owner.execute(grant)
        await loading
    assert (handler.trouble, sorted(handler.shards)) == (None, [0, 1])
