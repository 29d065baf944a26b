"""Names of classes that no page has any more make room for others, whoever brings these."""

import numpy as np
import pytest
from estimator_world import FEW, NOW, SHARDS, URLS
from page_batches import page_batch

from services.scheduler.demand.class_reports import class_crawls
from services.scheduler.flow.loading import build_shard, shard_rules
from services.scheduler.state.page_classes import OTHERS
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.runtime.clock import ManualClock
from shared.runtime.page_class_terms import ClassTerms
from shared.store import import_classes
from shared.store.class_numbers import MOST_CLASSES
from shared.store.connection import connect
from shared.store.explain import explain_page
from shared.store.imports import import_pages
from shared.store.imports_log import read_imported_pages
from shared.store.snapshot import load_shard

PAGES = [f"{URLS[0]}/{n}" for n in range(MOST_CLASSES)]
SHARD = shard_of(identify(PAGES[0]).host, SHARDS)


@pytest.fixture
def url(settings):
    return settings.database_url.get_secret_value()


def bring(url, at, classes):
    """Import pages, with the classes of the first of them; the report."""
    batch = page_batch(PAGES[: len(classes)], classes=classes)
    return import_pages(url, SHARDS, [batch], now=NOW + at)


@pytest.fixture
def full(url):
    """Every page of a class of its own: there is no number left."""
    assert bring(url, 0, [f"class{n}" for n in range(MOST_CLASSES)]).refused == 0
    return url


def class_of(url, page):
    return explain_page(url, page)["state"]["class"]


def take(shard, url):
    """What a scheduler does that was there before an import."""
    ids = np.array([identify(page).page_id for page in PAGES], np.int64)
    with connect(url, "test") as connection:
        for page in read_imported_pages(connection, SHARD, ids):
            assert shard.upsert(identify(page.url), page, page.updated_at, is_stored=True)


def names_in(shard):
    """Classes of the first pages."""
    rows = [shard.row_of(identify(page).page_id) for page in PAGES[:4]]
    return [shard.classes.name_of(int(shard.records["page_class"][row])) for row in rows]


def test_an_import_has_room_where_a_class_has_no_page_any_more(full, settings):
    running = build_shard(load_shard(full, SHARD), shard_rules(settings, ManualClock(NOW)))
    bring(full, 1, [None, None, None])  # of class0, class1 and class2 there is none
    take(running, full)
    # One of them is used again, just when two are new.
    assert bring(full, 2, ["class1", "new", "newer"]).reasons == []
    take(running, full)
    names = ["class1", "new", "newer", "class3"]
    assert [class_of(full, page) for page in PAGES[:4]] == names
    assert names_in(running) == names
    assert names_in(build_shard(load_shard(full, SHARD), running.rules)) == names

    assert bring(full, 3, ["class1", "new", "newer", "one-too-many"]).reasons == [
        "row 4: class one-too-many would be the 256th of its shard, and there may be 255: give "
        "its pages another one"
    ]
    assert class_of(full, PAGES[3]) == "class3"


def test_room_is_looked_for_once_an_import(full, monkeypatch):
    looks = []
    look = import_classes.read_unused_classes
    monkeypatch.setattr(
        import_classes, "read_unused_classes", lambda *given: (looks.append(1), look(*given))[1]
    )
    batches = [page_batch([PAGES[n]], classes=[f"more{n}"]) for n in range(3)]
    assert import_pages(full, SHARDS, batches, now=NOW + 1).refused == 3
    assert len(looks) == 1


@pytest.mark.parametrize("resident", [1_000_000, FEW])
async def test_an_estimator_has_room_once_it_loads_the_shard(full, begin, kafka, resident):
    handler = await begin(kafka, resident)
    gone = [PageUpdate("remove", page, updated_at=NOW + 1) for page in PAGES[:2]]
    other = PageUpdate("upsert", PAGES[2], updated_at=NOW + 1, page_class="class3")
    new = PageUpdate("upsert", PAGES[3], updated_at=NOW + 2, page_class="new")
    await handler.handle(kafka.batch(*gone, other, new))
    [refused] = kafka.refused
    assert "256th of its shard" in refused
    assert "restart the estimators" in refused
    assert "freshet dead-letters replay" in refused

    again = await begin(kafka, resident)
    more = [
        PageUpdate("upsert", page, updated_at=NOW + 3, page_class=name)
        for page, name in zip(PAGES[3:6], ("new", "newer", "newest"), strict=True)
    ]
    await again.handle(kafka.batch(*more))
    assert len(kafka.refused) == 1
    names = [class_of(full, page) for page in PAGES[:7]]
    assert names == [None, None, "class3", "new", "newer", "newest", "class6"]
    # What was removed is of no class when it comes back, whatever has its number now.
    await again.handle(kafka.batch(PageUpdate("upsert", PAGES[0], updated_at=NOW + 4)))
    assert class_of(full, PAGES[0]) is None


async def test_a_class_that_is_used_again_is_one_class(settings, url, start, kafka):
    handler = await start(kafka)
    for at, classes in enumerate((("some", "more"), (None, None))):
        pages = zip(PAGES, classes, strict=False)
        await handler.handle(
            kafka.batch(
                *(PageUpdate("upsert", p, updated_at=NOW + at, page_class=c) for p, c in pages)
            )
        )
    again = await start(kafka)
    await again.handle(
        kafka.batch(PageUpdate("upsert", PAGES[1], updated_at=NOW + 2, page_class="more"))
    )
    terms = {name: ClassTerms(weight=2.0) for name in ("some", "more")}
    rules = shard_rules(settings.model_copy(update={"classes": terms}), ManualClock(NOW))
    shard = build_shard(load_shard(url, SHARD), rules)
    found = {crawls.page_class: crawls.pages for crawls in class_crawls(shard, 1.0)}
    assert found == {"some": 0, "more": 1, OTHERS: 1}
