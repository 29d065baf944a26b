"""Quotas of hosts, kept by several who let pages in at the same time, die and go on."""

import asyncio
import random

import psycopg
import pytest
from page_batches import page_batch
from twin_hosts import HOST, TWIN

from shared.contracts.databases import Databases
from shared.contracts.identity import identify
from shared.store.connection import connect
from shared.store.growth import begin_growth
from shared.store.imports import import_pages
from shared.store.let_in import KEPT_SECONDS, let_in
from shared.store.questions import SharedQuestions
from shared.store.what_is_known import COUNTED_SECONDS, WhatIsKnown

pytestmark = pytest.mark.postgres

SHARDS = 4
MOST = 40
HOSTS = ["all.example", *(f"host-{number}.example" for number in range(4))]
THERE = [f"https://{host}/there/{n}" for host in HOSTS for n in range(3)]


def import_urls(migrated_url, urls):
    """What an estimator does with pages that are published."""
    import_pages(migrated_url, SHARDS, [page_batch(urls)], now=1.7e9)


@pytest.fixture
def database(migrated_url):
    import_urls(migrated_url, THERE)
    return migrated_url


@pytest.fixture
def known(database):
    """A function that makes somebody who lets pages in."""
    made = []

    def making():
        made.append(SharedQuestions(Databases.alone(database), "discoverer"))
        return WhatIsKnown(made[-1])

    yield making
    for questions in made:
        questions.stop()


def pages_of(host, numbers):
    return [identify(f"https://{host}/new/{number}") for number in numbers]


def new_of(became):
    return {page_id for page_id, was in became.items() if was == "new"}


async def test_however_many_let_pages_in_each_host_gets_its_quota_and_not_one_more(database, known):
    several = [known() for _ in range(4)]
    chance = random.Random(7)
    was_new = {host: set() for host in HOSTS}
    importing = asyncio.Lock()

    async def run(one, seed):
        mine = random.Random(seed)
        for _ in range(12):
            host = mine.choice(HOSTS[1:])
            wanted = pages_of(host, mine.sample(range(90), 8))
            wanted += pages_of("all.example", mine.sample(range(90), 8))
            new = new_of(await one.let_in(wanted, MOST, 0.0))
            for page in wanted:
                if page.page_id in new:
                    was_new[page.host].add(page.url)
            if mine.random() < 0.5:
                # The estimators get some of them, among what is let in.
                async with importing:
                    urls = [page.url for page in wanted if page.page_id in new]
                    await asyncio.to_thread(import_urls, database, urls)

    await asyncio.gather(*(run(one, chance.random()) for one in several))
    one = known()
    for host in HOSTS:
        # Whoever comes later fills what is left, and no more.
        for first in range(0, 90, 10):
            wanted = pages_of(host, range(first, first + 10))
            new = new_of(await one.let_in(wanted, MOST, 0.0))
            was_new[host] |= {page.url for page in wanted if page.page_id in new}
        assert len(was_new[host]) == MOST - 3, host


async def test_who_dies_before_it_has_published_lets_the_same_pages_in_again(known):
    pages = pages_of(HOSTS[0], range(60))
    first = new_of(await known().let_in(pages, MOST, 0.0))
    assert len(first) == MOST - 3
    # Another one, which has counted what was let in, or has not.
    for later in (known(), known()):
        assert new_of(await later.let_in(pages, MOST, 0.0)) == first
        assert new_of(await later.let_in(pages[::-1], MOST, 0.0)) == first


async def test_who_dies_in_the_middle_has_let_nothing_in(database, known):
    pages = pages_of(HOSTS[0], range(60))
    before = {HOSTS[0]: 3}
    with connect(database, "test", autocommit=True) as connection:

        class Dying:
            """A connection that is lost with the last statement."""

            def execute(self, query, *arguments, **more):
                if "UPDATE let_in_hosts" in query:
                    connection.close()
                return connection.execute(query, *arguments, **more)

            def transaction(self):
                return connection.transaction()

        with pytest.raises(psycopg.OperationalError):
            let_in(Dying(), pages, before, MOST)
    with connect(database, "test", autocommit=True) as other:
        assert other.execute("SELECT count(*) FROM let_in_pages").fetchone() == (0,)
    assert len(new_of(await known().let_in(pages, MOST, 0.0))) == MOST - 3


async def test_a_count_forgets_what_has_come_and_what_was_lost_and_nothing_else(database, known):
    one = known()
    pages = pages_of(HOSTS[0], range(MOST - 3))
    assert len(new_of(await one.let_in(pages, MOST, 0.0))) == len(pages)
    import_urls(database, [page.url for page in pages[:10]])
    lost = [page.page_id for page in pages[10:15]]
    with connect(database, "test", autocommit=True) as connection:
        connection.execute(
            "UPDATE let_in_pages SET let_in_at = let_in_at - %s WHERE page_id = ANY(%s)",
            (KEPT_SECONDS + 60, lost),
        )
        await one.hosts([HOSTS[0]], COUNTED_SECONDS)
        rows = connection.execute("SELECT page_id FROM let_in_pages").fetchall()
    assert {page_id for (page_id,) in rows} == {page.page_id for page in pages[15:]}
    # The places of those that are lost are free.
    more = pages_of(HOSTS[0], range(100, 120))
    assert len(new_of(await one.let_in(more, MOST, COUNTED_SECONDS))) == 5


async def test_a_quota_holds_while_shards_become_more(database, known):
    one, other = known(), known()
    assert len(new_of(await one.let_in(pages_of(HOSTS[0], range(20)), MOST, 0.0))) == 20
    await asyncio.to_thread(begin_growth, database, 2 * SHARDS)
    assert len(new_of(await other.let_in(pages_of(HOSTS[0], range(90)), MOST, 0.0))) == MOST - 3
    assert new_of(await one.let_in(pages_of(HOSTS[0], range(90, 99)), MOST, 0.0)) == set()


async def test_a_host_that_has_the_id_of_another_one_takes_nothing_of_its_quota(database, known):
    import_urls(database, [f"https://{HOST}/"])
    one = known()
    twins = await one.let_in(pages_of(TWIN, range(MOST)), MOST, 0.0)
    assert set(twins.values()) == {"host"}
    became = await one.let_in(pages_of(HOST, range(MOST)), MOST, 0.0)
    assert list(became.values()).count("new") == MOST - 1
