"""Classes of pages: they outlive workers, reach schedulers by every way, and are never too many."""

import numpy as np
import pytest
from estimator_world import NOW, SHARDS, URLS
from page_batches import page_batch

from services.scheduler.explain import page_state
from services.scheduler.flow.loading import build_shard, shard_rules
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.runtime.clock import ManualClock
from shared.runtime.page_class_terms import ClassTerms
from shared.store.class_numbers import MOST_CLASSES
from shared.store.connection import connect
from shared.store.explain import explain_page
from shared.store.imports import import_pages
from shared.store.imports_log import read_imported_pages
from shared.store.poll_prices import read_beliefs
from shared.store.snapshot import load_shard

URL = URLS[0]
PAGE = identify(URL)
SHARD = shard_of(PAGE.host, SHARDS)


@pytest.fixture
def url(settings):
    return settings.database_url.get_secret_value()


def say(at, **fields):
    return PageUpdate("upsert", URL, updated_at=NOW + at, **fields)


def of_scheduler(settings, url, weight=4.0):
    """As a shard that a scheduler loads has it: class, own importance, and what counts."""
    terms = {"news": ClassTerms(weight=weight)}
    rules = shard_rules(settings.model_copy(update={"classes": terms}), ManualClock(NOW))
    shard = build_shard(load_shard(url, SHARD), rules)
    told = page_state(shard, PAGE, NOW, 0.0)
    counts = float(shard.pages["importance"][shard.row_of(PAGE.page_id)])
    return told["page_class"], told["importance"], counts


async def test_a_class_outlives_estimators_and_weighs_at_schedulers(settings, start, kafka, url):
    first = await start(kafka)
    await first.handle(kafka.batch(say(0, importance=3.0)))
    assert of_scheduler(settings, url) == (None, 3.0, 3.0)
    await first.handle(kafka.batch(say(1, page_class="news")))
    assert of_scheduler(settings, url) == ("news", 3.0, 12.0)
    assert explain_page(url, URL)["state"]["class"] == "news"
    # Who takes the shard over knows the class: it stays, and is taken away.
    again = await start(kafka)
    await again.handle(kafka.batch(say(2, importance=5.0)))
    assert of_scheduler(settings, url) == ("news", 5.0, 20.0)
    with connect(url, "test") as connection:
        known = read_beliefs(connection, SHARD, [PAGE.page_id], {"news": 4.0, "other": 9.0})
        assert known.importance.tolist() == [20.0]
        assert read_beliefs(connection, SHARD, [PAGE.page_id], {}).importance.tolist() == [5.0]
    await again.handle(kafka.batch(say(1.5, page_class="late"), say(3, page_class=None)))
    assert of_scheduler(settings, url) == (None, 5.0, 5.0)
    assert kafka.refused == []


async def test_a_page_that_was_removed_begins_without_a_class(settings, start, kafka, url):
    handler = await start(kafka)
    await handler.handle(kafka.batch(say(0, page_class="news")))
    gone = PageUpdate("remove", URL, updated_at=NOW + 1)
    await handler.handle(kafka.batch(gone, say(2, importance=2.0)))
    assert of_scheduler(settings, url) == (None, 2.0, 2.0)


async def test_one_class_too_many_is_set_aside_and_the_rest_is_done(settings, start, kafka, url):
    handler = await start(kafka)
    classes = [say(n, page_class=f"class{n}") for n in range(MOST_CLASSES)]
    await handler.handle(kafka.batch(*classes))
    more, other = say(999, page_class="more", importance=9.0), say(1000, importance=7.0)
    await handler.handle(kafka.batch(more, other))
    [refused] = kafka.refused
    assert "256th of its shard, and there may be 255" in str(refused)
    assert of_scheduler(settings, url) == ("class254", 7.0, 7.0)
    # Of all others there is no page: whoever loads the shard has room for new ones.
    again = await start(kafka)
    await again.handle(kafka.batch(say(1001, page_class="news")))
    assert of_scheduler(settings, url) == ("news", 7.0, 28.0)


async def test_imports_name_classes_too(settings, url):
    urls = [URL, f"{URL}2", f"{URL}3"]
    batch = page_batch(urls, importance=np.full(3, 2.0), classes=["news", None, "Not so"])
    report = import_pages(url, SHARDS, [batch], now=NOW)
    assert (report.added, report.refused) == (2, 1)
    assert "class 'Not so' must be of a-z" in report.reasons[0]
    assert of_scheduler(settings, url) == ("news", 2.0, 8.0)
    # A file that says nothing of classes leaves them; one that does may take them away.
    import_pages(url, SHARDS, [page_batch(urls[:1])], now=NOW + 1)
    assert of_scheduler(settings, url) == ("news", 1.0, 4.0)
    with connect(url, "test") as connection:
        ids = np.array([PAGE.page_id])
        assert [u.page_class for u in read_imported_pages(connection, SHARD, ids)] == ["news"]
    import_pages(url, SHARDS, [page_batch(urls[:1], classes=[None])], now=NOW + 2)
    assert of_scheduler(settings, url) == (None, 1.0, 1.0)
