"""Rules of a host by who made them: robots.txt, the host itself, and what was learned.

Revision 0008.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ADDED: tuple[sa.Column[Any], ...] = (
    sa.Column("crawl_delay", sa.Double),
    sa.Column("asked_until", sa.Double, nullable=False, server_default="-infinity"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed_at", sa.Double, nullable=False, server_default="-infinity"),
)


def upgrade() -> None:
    """Add the columns; no row is written anew for them. What was a block stays one of operators."""
    for column in _ADDED:
        op.add_column("hosts", column)


def downgrade() -> None:
    """Drop them: hosts that asked for a pause, or that fail, are crawled again."""
    for column in _ADDED:
        op.drop_column("hosts", column.name)
