"""Rows of hosts that are made to have the id of another one: no import takes their pages."""

import pytest
from page_batches import page_batch
from twin_hosts import HOST, TWIN

from shared.contracts.identity import identify, shard_of
from shared.store.connection import connect
from shared.store.imports import import_pages

NOW = 1.7e9
SHARDS = 4
"""They are of the same one."""
REASON = f"host {TWIN} has the id of another host, and is none for that"


def bring(url, *batches, shards=SHARDS):
    """Import pages, a batch for each list of hosts; the report."""
    made = (page_batch([f"https://{host}/{n}" for n, host in enumerate(b)]) for b in batches)
    return import_pages(url, shards, made, now=NOW)


def hosts_of_pages(url):
    with connect(url, "test") as connection:
        names = connection.execute("SELECT host FROM hosts").fetchall()
        urls = connection.execute(
            "SELECT url FROM page_urls JOIN pages USING (shard, page_id)"
        ).fetchall()
    return sorted(name for (name,) in names), {identify(page).host for (page,) in urls}


@pytest.mark.parametrize(
    ("batches", "refused"),
    [
        ([[HOST, TWIN, "other.example", TWIN]], [2, 4]),  # of one batch
        ([[HOST], ["other.example", TWIN], [TWIN, HOST]], [3, 4]),  # and of later ones
    ],
)
def test_who_comes_second_is_refused(migrated_url, batches, refused):
    report = bring(migrated_url, *batches)

    assert report.reasons == [f"row {row}: {REASON}" for row in refused]
    assert hosts_of_pages(migrated_url) == (["other.example", HOST], {HOST, "other.example"})


def test_who_comes_first_is_the_host_whatever_its_name(migrated_url):
    assert bring(migrated_url, [TWIN, HOST]).reasons == [f"row 2: {REASON.replace(TWIN, HOST)}"]
    assert hosts_of_pages(migrated_url) == ([TWIN], {TWIN})


def test_who_was_there_before_the_import_is_the_host(migrated_url):
    bring(migrated_url, [HOST])

    report = bring(migrated_url, [HOST, TWIN, TWIN])

    assert (report.added, report.updated, report.refused) == (0, 1, 2)
    assert hosts_of_pages(migrated_url) == ([HOST], {HOST})


def test_hosts_of_different_shards_may_have_one_id(migrated_database):
    url = migrated_database(3)
    assert shard_of(HOST, 3) != shard_of(TWIN, 3)
    assert bring(url, [HOST, TWIN], shards=3).refused == 0
    assert hosts_of_pages(url) == ([TWIN, HOST], {HOST, TWIN})
