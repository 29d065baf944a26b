"""Two PostgreSQL servers, of which the second follows the first until it takes its place.

What an operator or a tool like Patroni does at a failover, step by step: the old primary is ended
first, so that nobody writes to it any more; the standby is promoted; the old one is copied anew and
follows.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg

from deploy.local.postgres import EmbeddedPostgres
from deploy.local.process import StartError

NAMES: Final = ("one", "two")

FOLLOWING_SECONDS: Final = 60.0
"""A standby that has just been copied follows within this."""

_LOOK_SECONDS: Final = 0.05
_SETTINGS: Final = {
    "wal_level": "replica",
    "max_wal_senders": "8",
    "hot_standby": "on",
    "wal_keep_size": "512MB",
    "wal_receiver_timeout": "5s",
    "wal_sender_timeout": "5s",
    "wal_retrieve_retry_interval": "500ms",
}


class PostgresPair:
    """Two servers under `data_dir`; one is the primary."""

    def __init__(self, data_dir: Path, seen: Callable[[str], Path] | None = None) -> None:
        """Make them, not started yet.

        Args:
            data_dir: where everything is.
            seen: folder of the socket by which the other server reaches the one of this name: a
                proxy's; None: its own.
        """
        self.servers = {name: EmbeddedPostgres(data_dir / name, _SETTINGS) for name in NAMES}
        self.primary, self.standby = NAMES
        self._seen = seen or (lambda name: self.servers[name].socket_directory)

    @property
    def leading(self) -> EmbeddedPostgres:
        """The server that is, or was last, the primary."""
        return self.servers[self.primary]

    def start(self) -> None:
        """Start the primary, alone; raises StartError."""
        self.leading.start()

    def stop(self) -> None:
        """Stop both; one that is not there is no error."""
        for name in (self.standby, self.primary):
            self.servers[name].stop()

    def follow(self) -> None:
        """Make the standby anew, and let the primary wait for it in each commit.

        Raises StartError.
        """
        standby = self.servers[self.standby]
        standby.copy_from(self._seen(self.primary))
        standby.start()
        self.wait_for(standby=True)

    def wait_for(self, *, standby: bool) -> None:
        """Let commits wait for the standby, which must be there, or for nobody.

        Raises StartError: it does not follow.
        """
        deadline = time.monotonic() + FOLLOWING_SECONDS
        while standby and not self._follows():
            if time.monotonic() > deadline:
                raise StartError(f"{self.standby} does not follow {self.primary}")
            time.sleep(_LOOK_SECONDS)
        _set_waited_for(self.leading, self.standby if standby else "")

    def _follows(self) -> bool:
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        with psycopg.connect(self.leading.uri, autocommit=True) as connection:
            row = connection.execute(query).fetchone()
            return row is not None and row[0] > 0

    def promote(self) -> None:
        """Let the standby take the place of the primary, which has been ended.

        Raises StartError: it stays a standby.
        """
        chosen = self.servers[self.standby]
        _set_waited_for(chosen, "")
        with psycopg.connect(chosen.uri, autocommit=True) as connection:
            row = connection.execute("SELECT pg_promote(true, 30)").fetchone()
            if row is None or not row[0]:
                raise StartError(f"PostgreSQL {self.standby} cannot be promoted")
        self.primary, self.standby = self.standby, self.primary


def _set_waited_for(server: EmbeddedPostgres, name: str) -> None:
    with psycopg.connect(server.uri, autocommit=True) as connection:
        setting = psycopg.sql.Literal(name)
        connection.execute(
            psycopg.sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}").format(setting)
        )
        connection.execute("SELECT pg_reload_conf()")
