"""What `freshet doctor` says of PostgreSQL's log: how much more is written to it than need be."""

from collections.abc import Collection

import psycopg

from shared.runtime.findings import Finding

_NAME = "wal_compression"
_LIGHT = ("lz4", "zstd")
"""What hardly costs a processor anything. The server's own way, pglz, takes twice as much as
the whole update does without."""


def look_at_log(connection: psycopg.Connection) -> Finding:
    """Whether images of blocks go to the log as small as the server can make them cheaply."""
    row = connection.execute(
        "SELECT setting, enumvals FROM pg_settings WHERE name = %s", (_NAME,)
    ).fetchone()
    setting, offered = row or ("", None)
    return log_finding(str(setting), offered or ())


def log_finding(setting: str, offered: Collection[str]) -> Finding:
    """What is said of a server.

    Args:
        setting: its `wal_compression`.
        offered: what that may be; none before PostgreSQL 15.
    """
    better = [name for name in _LIGHT if name in offered]
    if setting in _LIGHT or not better:
        return Finding("ok", _NAME, setting)
    return Finding(
        "note",
        _NAME,
        setting,
        better[0],
        "the log is no larger than it has to be: after each checkpoint the first change of a block "
        "writes all of it, which is most of the log where pages are many",
        f"ALTER SYSTEM SET {_NAME} = {better[0]}; SELECT pg_reload_conf(); and see that "
        "checkpoints are rare (max_wal_size, checkpoint_timeout)",
    )
