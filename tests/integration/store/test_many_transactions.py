"""Shards grow on a server whose numbers of transactions have come round."""

import subprocess

import numpy as np
import psycopg
import pytest
from store_contents import NOW, SHARDS, fill, urls_of_shard

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from shared.contracts.databases import Databases
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.store import growth
from shared.store.connection import connect, connect_writer
from shared.store.erasing import ErasedRows, erase_pages
from shared.store.layout import fetch_layout
from shared.store.splitting import finish, prepare, split_all

pytestmark = [pytest.mark.postgres, pytest.mark.slow(4)]

GROWN = 2 * SHARDS
PAGES = 40


def come_round(server):
    """Let a server that is stopped have used all numbers once."""
    subprocess.run(
        [server._binaries / "pg_resetwal", "--epoch=1", "-D", server.data_dir / "cluster"],
        check=True,
        capture_output=True,
        cwd=server.data_dir,
        user=server.user,
    )


@pytest.fixture
def filled(system_dir):
    server = EmbeddedPostgres(system_dir)
    server.start()
    try:
        url = server.create_database("round")
        migrate(url, SHARDS)
        fill(url, [page for shard in range(SHARDS) for page in urls_of_shard(shard, PAGES)])
        server.stop()
        come_round(server)
        server.start()
        yield url
    finally:
        server.stop()


def crawls(url):
    """URL → its shard, and how often it was crawled."""
    with connect(url, "test") as connection:
        rows = connection.execute(
            "SELECT url, shard, crawls FROM pages JOIN page_urls USING (shard, page_id)"
        ).fetchall()
    return {page: (shard, count) for page, shard, count in rows}


def test_what_is_written_while_a_shard_is_copied_moves_as_it_is_in_the_end(filled, monkeypatch):
    make_copies = growth.make_copies
    changed, erased = [[*urls_of_shard(0, PAGES)[part::2]] for part in (0, 1)]
    erased = erased[:5]

    def ids_of(urls):
        return np.sort(np.array([identify(url).page_id for url in urls]))

    def go_on_meanwhile(connection, parent, shards):
        made = make_copies(connection, parent, shards)
        if parent == 0:
            with connect_writer(filled, "test") as estimator:
                estimator.execute(
                    "UPDATE pages SET crawls = 7 WHERE page_id = ANY(%s)", (ids_of(changed),)
                )
                gone, zeros = ids_of(erased), np.zeros(len(erased))
                erase_pages(estimator, ErasedRows(zeros.astype(np.int16), gone, zeros + NOW))
        return made

    monkeypatch.setattr(growth, "make_copies", go_on_meanwhile)
    with psycopg.connect(filled) as connection:
        [used] = connection.execute("SELECT pg_current_xact_id()::text::int8 >> 32").fetchone()
    assert used == 1
    databases = Databases.alone(filled)
    layout = prepare(databases, GROWN)
    split_all(databases, layout, lambda *_: None, wait_seconds=0.0, unattended=True)
    finish(databases, layout, lambda *_: None)
    assert fetch_layout(filled) == Layout(GROWN, SHARDS, frozenset(range(SHARDS)))
    urls = [url for shard in range(SHARDS) for url in urls_of_shard(shard, PAGES)]
    assert crawls(filled) == {
        url: (shard_of(identify(url).host, GROWN), 7 if url in changed else 0)
        for url in urls
        if url not in erased
    }
