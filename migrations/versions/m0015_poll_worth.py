"""What polls of watched sources cost and bring.

Revision 0015.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_SUMS = ("worth", "worth_signals", "worth_days")


def upgrade() -> None:
    """Add the columns; a poller of the last release leaves them as they are."""
    table = "watched_sources"
    op.add_column(table, sa.Column("polls", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column(table, sa.Column("by_value", sa.Boolean, nullable=False, server_default="false"))
    for name in _SUMS:
        op.add_column(table, sa.Column(name, sa.Double, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop them; sources are read in the poller's other rhythm."""
    for name in ("polls", "by_value", *_SUMS):
        op.drop_column("watched_sources", name)
