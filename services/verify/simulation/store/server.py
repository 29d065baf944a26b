"""A PostgreSQL server of the simulation's own."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate

_SETTINGS: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Nothing of it has to outlast the run."""


@contextmanager
def postgres_server(partitions: int) -> Iterator[str]:
    """Address of an empty, migrated database, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="freshet-simulation-") as folder:
        Path(folder).chmod(0o711)
        server = EmbeddedPostgres(Path(folder) / "postgres", _SETTINGS)
        server.start()
        try:
            database_url = server.create_database("simulation")
            migrate(database_url, partitions)
            yield database_url
        finally:
            server.stop()
