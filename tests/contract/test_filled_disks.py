"""Disks filled under servers: PostgreSQL says so, goes on, and has what it has confirmed."""

import multiprocessing
from pathlib import Path

import psycopg
import pytest

from deploy.local.postgres import EmbeddedPostgres
from services.verify.disks import Disk, keep_mounts_apart, may_mount
from shared.store.connection import PASSING

ROWS = 200

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not may_mount(), reason="file systems may not be mounted here"),
]


def _story(folder: Path) -> None:
    keep_mounts_apart()
    disk = Disk(folder / "server")
    disk.mount()
    server = EmbeddedPostgres(disk._folder)
    server.start()
    try:
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (number int8, filler text)")
            confirmed = 0
            with disk.full():
                refused = None
                while refused is None and confirmed < 100 * ROWS:
                    try:
                        _store(connection)
                        confirmed += ROWS
                    except psycopg.errors.DiskFull as error:
                        refused = error
                # Workers wait for a database of which they hear this.
                assert isinstance(refused, PASSING)
                assert _count(connection) == confirmed
            _store(connection)
            assert _count(connection) == confirmed + ROWS
        disk.copy_to(folder / "copy")
    finally:
        server.stop()
    assert (folder / "copy" / "cluster" / "PG_VERSION").exists()


def _store(connection):
    statement = "INSERT INTO kept SELECT n, repeat('x', 500) FROM generate_series(1, %s) n"
    connection.execute(statement, (ROWS,))


def _count(connection):
    return connection.execute("SELECT count(*) FROM kept").fetchone()[0]


def test_a_full_disk_is_refused_to_writers_and_passes(scratch_dir, unique):
    folder = scratch_dir / f"disk-{unique}"
    folder.mkdir()
    # A process of its own: it parts from the mounts of all others for good.
    process = multiprocessing.get_context("spawn").Process(target=_story, args=(folder,))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert not any((folder / "server").iterdir()), "others see what is on the disk"
