"""What was erased: pages and hosts of which nothing else is kept.

Revision 0016.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_TABLES = (("erased_pages", "page_id"), ("erased_hosts", "host_id"))


def upgrade() -> None:
    """Add the tables; workers of the last release keep pages that are removed for good."""
    for table, key in _TABLES:
        op.create_table(
            table,
            sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
            sa.Column(key, sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("erased_at", sa.Double, nullable=False),
        )


def downgrade() -> None:
    """Drop them; updates that are older than an erasure bring pages back."""
    for table, _ in _TABLES:
        op.drop_table(table)
