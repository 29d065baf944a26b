"""Shards are split while estimators work: everything counts once, wherever producers send it.

The same messages are read by the estimators of an installation that never grows, one by one, and by
those of one that is split in between. In the end both have learned the same.
"""

import time

import numpy as np
import psycopg
import pytest
from estimator_world import DAY, FEW, NOW, SHARDS, URLS, crawl, signal, upsert
from growing_world import GROWN, Installation

from services.estimator import handler as handling
from services.estimator.handler import EstimatorHandler
from services.estimator.refitting import PUT_OFF_SECONDS, Refits
from shared.contracts.identity import identify
from shared.contracts.messages import HostLimit, PageUpdate
from shared.store.growth import begin_growth
from shared.store.layout import fetch_layout


@pytest.fixture
async def two(migrated_database):
    made = [Installation(migrated_database(SHARDS)) for _ in range(2)]
    yield made
    for one in made:
        await one.stop()


def story():
    """Messages in the order in which they are told."""
    yield from map(upsert, URLS)
    for day in range(1, 8):
        for number, url in enumerate(URLS):
            if (number + day) % 3 == 0:
                yield signal(url, NOW + (day - 0.5) * DAY, f"source-{number % 2}")
            if (number * day) % 4 < 2:
                result = "changed" if (number + day) % 3 == 0 else "unchanged"
                yield crawl(url, NOW + day * DAY, result)
    yield HostLimit("host-1.example", 3.0)
    yield HostLimit("host-2.example", max_open_requests=4, only="open")
    yield crawl(URLS[1], NOW + 9 * DAY, "failed", http_status=429, retry_after_seconds=60.0)
    yield crawl(URLS[3], NOW + 9 * DAY, "gone", http_status=410)
    yield PageUpdate("remove", URLS[5], updated_at=NOW + 9 * DAY)


async def test_what_was_learned_stays_and_nothing_counts_twice(two, monkeypatch):
    # Which hosts are fitted together depends on who has which shards.
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    still, growing = two
    await still.start(range(SHARDS))
    await growing.start(range(SHARDS))
    rng = np.random.default_rng(7)
    messages = list(story())
    grows_at = 100
    splits = {grows_at + 20 + 15 * n: parent for n, parent in enumerate(rng.permutation(SHARDS))}
    for number, message in enumerate(messages):
        still.log.add(message, SHARDS)
        await still.settle()
        if number == grows_at:
            begin_growth(growing.url, GROWN)
            await growing.start(range(SHARDS, GROWN - 2), range(GROWN - 2, GROWN))
        if number in splits:
            growing.split(int(splits[number]))
        # Producers know the new partitions, or do not.
        knows = number > grows_at and rng.random() < 0.5
        growing.log.add(message, GROWN if knows else SHARDS)
        await growing.settle()
    assert growing.log.passed_on > 50
    assert growing.log.refused == still.log.refused == []
    assert growing.learned() == still.learned()
    layout = fetch_layout(growing.url)
    assert not layout.is_growing
    assert all(
        layout.shard_of(identify(url).host) == shard for shard, url in growing.shards_of_pages()
    )
    # Who starts now with the number of before finds everything.
    await growing.stop()
    await growing.start(range(GROWN))
    for url in URLS[10:20]:
        for one in two:
            one.log.add(crawl(url, NOW + 10 * DAY, "changed"), SHARDS)
            await one.settle()
    assert growing.learned() == still.learned()


@pytest.mark.long
async def test_after_a_second_growth_what_was_sent_before_the_first_still_counts(two, monkeypatch):
    """Of producers that have heard of no growth, or of one."""
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    still, growing = two
    await still.start(range(SHARDS))
    await growing.start(range(2 * SHARDS))
    rng = np.random.default_rng(8)
    counts, splits = [SHARDS], []
    for number, message in enumerate(story()):
        still.log.add(message, SHARDS)
        await still.settle()
        if number in (60, 120):
            begin_growth(growing.url, 2 * counts[-1])
            splits += map(int, rng.permutation(counts[-1]))
            counts.append(2 * counts[-1])
            if number == 120:
                await growing.start(range(2 * SHARDS, 4 * SHARDS))
        if splits and number % 4 == 0:
            growing.split(splits.pop(0))
        growing.log.add(message, int(rng.choice(counts)))
        await growing.settle()
    assert counts == [SHARDS, 2 * SHARDS, 4 * SHARDS]
    layout = fetch_layout(growing.url)
    assert (layout.counts, layout.is_growing) == (tuple(counts), False)
    assert growing.log.refused == still.log.refused == []
    assert growing.log.passed_on > 50
    assert growing.learned() == still.learned()


async def test_nothing_is_behind_a_position_before_it_is_passed_on(two, monkeypatch):
    """Who dies between the two reads it again."""
    _, growing = two
    await growing.start(range(SHARDS))
    begin_growth(growing.url, GROWN)
    for shard in range(SHARDS):
        growing.split(shard)
    await growing.stop()
    await growing.start(range(GROWN))
    for url in URLS:
        growing.log.add(upsert(url), SHARDS)
    seen, pass_on = [], growing.log.pass_on

    async def looked_at(misplaced):
        with psycopg.connect(growing.url) as connection:
            query = "SELECT next_offset FROM stream_positions WHERE topic = %s AND partition = %s"
            for one in misplaced:
                place = one.record.topic, one.record.partition
                [(position,)] = connection.execute(query, place).fetchall() or [(0,)]
                seen.append(position <= one.record.offset)
        await pass_on(misplaced)

    monkeypatch.setattr(growing.log, "pass_on", looked_at)
    await growing.settle()
    assert len(seen) == growing.log.passed_on > 0
    assert all(seen)


async def test_a_record_of_another_family_is_still_a_mistake(two):
    _, growing = two
    begin_growth(growing.url, GROWN)
    await growing.start(range(GROWN))
    growing.log.add(upsert(URLS[0]), SHARDS, elsewhere=1)
    growing.log.add(upsert(URLS[1]), GROWN, elsewhere=1)
    growing.log.add(upsert(URLS[2]), GROWN, elsewhere=SHARDS)
    await growing.settle()
    assert len(growing.log.refused) == 2
    assert all("key the record by its host" in reason for reason in growing.log.refused)
    assert [url for _, url in growing.shards_of_pages()] == [URLS[2]]


async def test_an_owner_of_before_a_split_writes_nothing_any_more(two):
    _, growing = two
    await growing.start(range(SHARDS))
    for url in URLS:
        growing.log.add(upsert(url), SHARDS)
    await growing.settle()
    begin_growth(growing.url, GROWN)
    for parent in range(SHARDS):
        growing.split(parent)
    before = growing.learned()["pages"]
    # All of it is known to be another's before it is written, and read again from the database.
    for url in URLS:
        growing.log.add(crawl(url, NOW + DAY), SHARDS)
    await growing.settle()
    await growing.start(range(SHARDS, GROWN))
    await growing.settle()
    after = growing.learned()["pages"]
    assert len(after) == len(before) == len(URLS)
    assert all('"crawls": 1,' in page for page in after)


async def test_a_split_amid_a_batch_leaves_the_other_shards_of_the_batch_as_they_are(
    two, monkeypatch
):
    """They are stored, and not loaded anew: what they learn goes on."""
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    still, growing = two
    for one in two:
        await one.start(range(SHARDS))
        for url in URLS:
            one.log.add(upsert(url), SHARDS)
        await one.settle()
    begin_growth(growing.url, GROWN)
    process, load, to_split, loaded = handling.process, EstimatorHandler._load, [2], []

    def split_meanwhile(*arguments):
        done = process(*arguments)
        if to_split:
            growing.split(to_split.pop())
        return done

    async def noted(handler, number):
        loaded.append(number)
        await load(handler, number)

    monkeypatch.setattr(handling, "process", split_meanwhile)
    monkeypatch.setattr(EstimatorHandler, "_load", noted)
    for one in (growing, still):
        for url in URLS:
            one.log.add(crawl(url, NOW + DAY), SHARDS)
            one.log.add(signal(url, NOW + 2 * DAY), SHARDS)
        await one.settle()
    assert set(loaded) == {2}
    await growing.start(range(SHARDS, GROWN))
    await growing.settle()
    assert growing.learned() == still.learned()
    assert growing.log.announced.keys() == still.log.announced.keys()


async def test_the_others_do_not_wait_while_what_was_split_is_loaded(two, monkeypatch):
    """What is passed on of them neither: the crawlers' answers, for which schedulers wait."""
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    _, growing = two
    await growing.start(range(SHARDS))
    begin_growth(growing.url, GROWN)
    await growing.start(range(SHARDS, GROWN))
    for url in URLS:
        growing.log.add(upsert(url), SHARDS)
    await growing.settle()
    growing.split(3)
    for day in (1, 2):
        await growing.settle()
        for url in URLS:
            growing.log.add(crawl(url, NOW + day * DAY), SHARDS)
    growing.split(0)
    before, load, seen = growing.log.passed_on, EstimatorHandler._load, {}

    async def noted(handler, number):
        with psycopg.connect(growing.url) as connection:
            (crawls,) = connection.execute(
                "SELECT coalesce(sum(crawls), 0) FROM pages WHERE shard IN (1, 2)"
            ).fetchone()
        seen[number] = growing.log.passed_on - before, crawls
        await load(handler, number)

    monkeypatch.setattr(EstimatorHandler, "_load", noted)
    await growing.settle()
    layout = fetch_layout(growing.url)
    shards = [layout.shard_of(identify(url).host) for url in URLS]
    passed_on = sum(shard > 3 and shard % SHARDS == 3 for shard in shards)
    assert passed_on > 0
    assert seen[0] == (passed_on, 2 * sum(shard in (1, 2) for shard in shards))
    assert growing.log.passed_on - before > passed_on


@pytest.mark.long
async def test_shards_without_hosts_are_not_loaded_before_something_comes(two, monkeypatch):
    """A growth may add hundreds, and meanwhile nothing of the others would be applied."""
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    still, growing = two
    await still.start(range(SHARDS))
    load, loaded = EstimatorHandler._load, []

    async def noted(handler, number):
        loaded.append(number)
        await load(handler, number)

    await growing.start(range(SHARDS))
    begin_growth(growing.url, GROWN)
    monkeypatch.setattr(EstimatorHandler, "_load", noted)
    await growing.start(range(SHARDS, GROWN))
    assert loaded == []
    for day in range(4):
        for url in URLS:
            message = crawl(url, NOW + day * DAY) if day else upsert(url)
            still.log.add(message, SHARDS)
            growing.log.add(message, SHARDS)
            await still.settle()
            await growing.settle()
        if day:
            growing.split(SHARDS - day)
    assert 7 in loaded
    assert growing.learned() == still.learned()


async def test_what_comes_of_a_new_shard_is_passed_on_where_not_all_pages_are_in_memory(
    two, monkeypatch
):
    """It has no tables before its parent is split, and there is more than there is room for."""
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    for one in two:
        one.settings = one.settings.model_copy(update={"estimator_resident_pages": FEW})
        await one.start(range(SHARDS))
        for url in URLS:
            one.log.add(upsert(url), SHARDS)
        await one.settle()
        await one.stop()
    still, growing = two
    begin_growth(growing.url, GROWN)
    await still.start(range(SHARDS))
    await growing.start(range(GROWN))
    for day in range(SHARDS + 1):
        for url in URLS:
            still.log.add(crawl(url, NOW + day * DAY), SHARDS)
            growing.log.add(crawl(url, NOW + day * DAY), GROWN)
        for one in two:
            await one.settle()
        if day < SHARDS:
            growing.split(day)
    assert growing.log.passed_on > 0
    assert growing.learned() == still.learned()


async def begin_with_crawls(growing):
    """A growth begins, and each page was crawled three times."""
    begin_growth(growing.url, GROWN)
    await growing.start(range(GROWN))
    for url in URLS:
        growing.log.add(upsert(url), SHARDS)
        for day in range(1, 4):
            growing.log.add(crawl(url, NOW + day * DAY), SHARDS)


async def test_a_refit_that_a_split_has_cut_off_is_not_tried_again_while_shards_are_split(
    two, monkeypatch
):
    """Each try would have all shards loaded anew, those that are split next among them."""
    _, growing = two
    await begin_with_crawls(growing)
    with monkeypatch.context() as first:
        first.setattr(Refits, "are_due", lambda *_: False)
        await growing.settle()
    refit, left, refitted = handling.refit, list(range(SHARDS)), []

    def cut_off(shards, material):
        refitted.append(len(shards))
        if left:
            growing.split(left.pop())
        return refit(shards, material)

    monkeypatch.setattr(handling, "refit", cut_off)
    growing.log.add(crawl(URLS[0], NOW + 9 * DAY), GROWN)
    await growing.settle()
    assert refitted == [GROWN]
    assert len(left) == SHARDS - 1
    for parent in left:
        growing.split(parent)
    left.clear()
    for url in URLS:
        growing.log.add(crawl(url, NOW + 10 * DAY), GROWN)
    await growing.settle()
    assert refitted == [GROWN]
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + PUT_OFF_SECONDS)
    growing.log.add(crawl(URLS[0], NOW + 11 * DAY), GROWN)
    await growing.settle()
    assert refitted == [GROWN, GROWN]


async def test_a_refit_of_all_hosts_goes_on_though_new_shards_are_quiet(two, monkeypatch):
    """Shards about which nothing comes are out of date; a refit concerns them too."""
    _, growing = two
    await begin_with_crawls(growing)
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
    await growing.settle()
    for parent in range(SHARDS):
        growing.split(parent)
    monkeypatch.undo()
    together, refit = [], handling.refit

    def noted(shards, material):
        together.append({shard.number: len(shard.pages) for shard in shards})
        return refit(shards, material)

    monkeypatch.setattr(handling, "refit", noted)
    growing.log.add(crawl(URLS[0], NOW + 9 * DAY), GROWN)
    await growing.settle()
    assert together[0].keys() == set(range(GROWN))
    assert sum(together[0].values()) == len(URLS)
