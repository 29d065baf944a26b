"""A page that an import and a later update are about is in the end what the database says it is."""

import asyncio
from collections import deque

import numpy as np
import pytest
from aiokafka import ConsumerRecord

from services.scheduler.flow.imported import ImportWatch
from services.scheduler.flow.reader import Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.page_classes import LOOKS, MOST_LEFT_OUT
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import PageSignal, PageUpdate
from shared.runtime.acceptance import Acceptance
from shared.runtime.settings import Settings
from shared.store.class_numbers import MOST_CLASSES
from shared.store.imports_log import LearnedPages, PageImport
from shared.store.last_imports import LastImport

PAGE = identify("http://a.example/")
IMPORTED = PageImport(0, LastImport(1, 6.0), np.array([PAGE.page_id]))


NOTHING = LearnedPages(*(np.empty(0, kind) for kind in (np.int64, *[float] * 3, np.uint8)))


class Inline:
    """The shards' thread, at once."""

    async def run(self, work, *given):
        return work(*given)


@pytest.fixture(autouse=True)
def learned(monkeypatch):
    """What the database has learned of pages that come."""
    found = [NOTHING]
    monkeypatch.setattr(ImportWatch, "_read_learned", lambda *_: found[0])
    return found


@pytest.fixture
def shard():
    made = make_shard(0, ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0))
    made.upsert(PAGE, PageUpdate("upsert", PAGE.url, 1.5), 5.0)
    made.upsert(PAGE, PageUpdate("upsert", PAGE.url, max_age_days=3.0), 7.0)
    return made


def importance_of(shard):
    return float(shard.pages["importance"][shard.row_of(PAGE.page_id)])


async def test_what_a_later_update_leaves_open_is_as_the_import_says(monkeypatch, shard):
    database = [PageUpdate("upsert", PAGE.url, 4.0, updated_at=6.0)]
    watch = ImportWatch(Settings(), Inline(), lambda: {0: shard})
    monkeypatch.setattr(ImportWatch, "_read_pages", lambda *_: database)

    await watch._take(shard, IMPORTED, asyncio.Event())
    assert importance_of(shard) == 1.5, "what the topic said later stands"
    await watch._look_again(asyncio.Event())
    assert importance_of(shard) == 1.5, "the database does not know of it yet"
    database[:] = [PageUpdate("upsert", PAGE.url, 4.0, 3.0, updated_at=7.0)]
    await watch._look_again(asyncio.Event())
    assert importance_of(shard) == 4.0
    database[:] = [PageUpdate("upsert", PAGE.url, 9.0, 3.0, updated_at=7.0)]
    await watch._look_again(asyncio.Event())
    assert importance_of(shard) == 4.0, "it is not looked for any more"


async def test_a_database_that_is_away_meanwhile_is_asked_again(monkeypatch, shard):
    answers = [[PageUpdate("upsert", PAGE.url, 4.0, updated_at=6.0)]]
    watch = ImportWatch(Settings(), Inline(), lambda: {0: shard})
    monkeypatch.setattr(ImportWatch, "_read_pages", lambda *_: answers.pop())
    await watch._take(shard, IMPORTED, asyncio.Event())
    with pytest.raises(IndexError):
        await watch._look_again(asyncio.Event())
    answers.append([PageUpdate("upsert", PAGE.url, 4.0, 3.0, updated_at=7.0)])
    await watch._look_again(asyncio.Event())
    assert importance_of(shard) == 4.0


async def test_a_page_that_was_left_out_for_its_class_is_taken_once_the_database_has_it(
    monkeypatch, shard
):
    """An estimator that starts finds that a class has no page any more, and so has room for it."""
    for number in range(MOST_CLASSES):
        said = PageUpdate("upsert", PAGE.url, page_class=f"class{number}")
        shard.upsert(PAGE, said, 8.0 + number)
    new = identify("http://a.example/new")
    for url in (new.url, PAGE.url):
        assert not shard.upsert(identify(url), PageUpdate("upsert", url, page_class="more"), 999.0)
    known = PageUpdate("upsert", PAGE.url, 1.5, updated_at=8.0 + MOST_CLASSES - 1)
    database = [known]
    watch = ImportWatch(Settings(), Inline(), lambda: {0: shard})
    monkeypatch.setattr(ImportWatch, "_read_pages", lambda *_: database)

    await watch._look_again(asyncio.Event())
    assert shard.count == 1, "the database does not have it yet"
    database[:] = [
        PageUpdate("upsert", url, 4.0, updated_at=999.0, page_class="more")
        for url in (new.url, PAGE.url)
    ]
    await watch._look_again(asyncio.Event())
    assert (shard.count, importance_of(shard)) == (2, 4.0)
    classes = [shard.classes.name_of(int(number)) for number in shard.records["page_class"][:2]]
    assert classes == ["more", "more"]
    assert await Inline().run(watch._left_out) == []


async def test_what_an_estimator_has_refused_is_not_looked_for_for_ever(shard):
    for page_id in range(MOST_LEFT_OUT + 10):
        shard.classes.leave_out(page_id, 1.0)
    for _ in range(LOOKS):
        assert len(shard.classes.take_left_out()) == MOST_LEFT_OUT
    assert shard.classes.take_left_out() == []


NEW = identify("http://a.example/new")


def signal_of(page, at, source="cms"):
    value = encode(PageSignal(page.page_id, page.url, page.host, source, at))
    return ConsumerRecord("page-signals", 0, 0, int(1000 * at), 1, None, value, None, 0, 0, ())


def hear(shard, *records):
    reader = Reader(Acceptance(now=99.0, latest=99.0, record_times_count=True))
    reader.apply(shard, "page-signals", records)


async def take(monkeypatch, shard, page, updated_at=10.0):
    found = [PageUpdate("upsert", page.url, crawled_at=2.0, updated_at=updated_at)]
    monkeypatch.setattr(ImportWatch, "_read_pages", lambda *_: found)
    watch = ImportWatch(Settings(), Inline(), lambda: {0: shard})
    ids = np.array([page.page_id])
    await watch._take(shard, PageImport(0, LastImport(1, updated_at), ids), asyncio.Event())
    return shard.pages[shard.row_of(page.page_id)]


async def test_signals_that_come_before_an_imported_page_is_found_count(monkeypatch, shard):
    """The estimator, which reads pages from the database, counts them."""
    hear(shard, signal_of(NEW, 11.0), signal_of(PAGE, 11.5), signal_of(NEW, 12.0, "feed"))
    shard.upsert(usual := identify("http://a.example/usual"), PageUpdate("upsert", usual.url), 10.0)
    hear(shard, signal_of(usual, 11.0), signal_of(usual, 12.0, "feed"))
    page = await take(monkeypatch, shard, NEW)
    assert page["signals"] == shard.pages[shard.row_of(usual.page_id)]["signals"] > 0.0
    assert shard.signal_times.of(shard.row_of(NEW.page_id)) == pytest.approx(12.0, abs=0.01)
    # Once: what is known of the page already is not heard of again.
    before = float(page["signals"])
    page = await take(monkeypatch, shard, NEW, updated_at=10.5)
    assert page["signals"] == before


async def test_signals_from_before_the_import_do_not(monkeypatch, shard):
    hear(shard, signal_of(NEW, 9.0))
    page = await take(monkeypatch, shard, NEW)
    assert page["signals"] == 0.0


async def test_only_the_last_signals_of_strangers_are_kept(monkeypatch, shard):
    shard.absent._signals = deque(maxlen=2)
    hear(shard, signal_of(NEW, 11.0))
    hear(shard, *(signal_of(identify(f"http://a.example/{n}"), 12.0) for n in range(2)))
    page = await take(monkeypatch, shard, NEW)
    assert page["signals"] == 0.0


async def test_what_was_learned_of_a_page_before_it_was_removed_is_taken_with_it(
    monkeypatch, shard, learned
):
    """Nobody announces it: the database says that it is known."""
    columns = (np.full(1, value) for value in (24.0, 2.0, 5.0))
    learned[0] = LearnedPages(np.array([NEW.page_id]), *columns, np.full(1, 3, np.uint8))
    page = await take(monkeypatch, shard, NEW)
    assert (page["alpha"], page["kappa"], page["gamma"]) == (24.0, 2.0, 5.0)
    assert shard.records["activity"][shard.row_of(NEW.page_id)] == 3
