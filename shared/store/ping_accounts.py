"""What the receiver has handed on, by source, and how late all sources are: for people."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import psycopg


class PingNews(NamedTuple):
    """What is new of a source since it was written down last."""

    source: str
    signals: int = 0
    exact_signals: int = 0
    """Those that say when their page changed."""
    delay_seconds: float = 0.0
    """Of them all, from these times to their arrival."""


_WRITE: Final = """
INSERT INTO ping_accounts AS account (source, signals, exact_signals, delay_seconds)
VALUES (%(source)s, %(signals)s, %(exact_signals)s, %(delay_seconds)s)
ON CONFLICT (source) DO UPDATE SET
    signals = account.signals + excluded.signals,
    exact_signals = account.exact_signals + excluded.exact_signals,
    delay_seconds = account.delay_seconds + excluded.delay_seconds
"""
_DELAYS: Final = """
SELECT source, sum(delay_seconds) / sum(exact_signals) FROM (
    SELECT source, exact_signals, delay_seconds FROM ping_accounts
    UNION ALL SELECT source, exact_signals, delay_seconds FROM watched_sources
    UNION ALL SELECT source, exact_signals, delay_seconds FROM stream_cursors
) AS account
GROUP BY source HAVING sum(exact_signals) > 0
"""


def write_pings(connection: psycopg.Connection, news: Sequence[PingNews]) -> None:
    """Add what several sources have sent: all of it or nothing.

    Args:
        connection: that commits by itself.
        news: each source once.
    """
    with connection.transaction():
        # Several receivers write the same rows: in one order, so that none waits for another.
        for one in sorted(news):
            connection.execute(_WRITE, one._asdict())


def read_delays(connection: psycopg.Connection) -> dict[str, float]:
    """Source → seconds from the times that its signals say to their arrival, on average: of what
    the receiver took, and what the poller read. Those whose signals say none are left out."""
    return {str(source): float(late) for source, late in connection.execute(_DELAYS)}
