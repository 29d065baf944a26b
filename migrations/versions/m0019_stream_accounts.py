"""What streams of events cost and bring, and why one cannot be read.

Revision 0019.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_TEXTS = ("url", "reason")
_COUNTS = (
    *("connections", "failures", "gaps", "bytes_read"),
    *("events", "bad_events", "signals", "exact_signals"),
)
_SUMS = ("delay_seconds", "worth", "worth_signals", "worth_days")


def upgrade() -> None:
    """Add the columns; a poller of the last release leaves them as they are."""
    for name in _TEXTS:
        _add(name, sa.Text, "")
    for name in _COUNTS:
        _add(name, sa.BigInteger, "0")
    for name in _SUMS:
        _add(name, sa.Double, "0")
    _add("since", sa.Double, "infinity")
    _add("read_at", sa.Double, "-infinity")


def downgrade() -> None:
    """Drop them; streams are read on where they stand."""
    for name in (*_TEXTS, *_COUNTS, *_SUMS, "since", "read_at"):
        op.drop_column("stream_cursors", name)


def _add(name: str, kind: type[sa.types.TypeEngine[Any]], default: str) -> None:
    op.add_column("stream_cursors", sa.Column(name, kind, nullable=False, server_default=default))
