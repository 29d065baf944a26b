"""Two coordinators, one of which leads, and what each decision was made of.

Revision 0002.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, REAL

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ADDED: tuple[sa.Column[Any], ...] = (
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("leader", sa.Text, nullable=False, server_default=""),
    sa.Column("ramp_to", sa.Double),
    sa.Column("ramp_seconds", sa.Double, nullable=False, server_default="0"),
    sa.Column("achieved_crawls_per_second", sa.Double),
    sa.Column("achieved_ratio", sa.Double),
    sa.Column("live_shards", sa.Integer),
    sa.Column("shards", ARRAY(sa.SmallInteger), comment="those with a share"),
    sa.Column("shares", ARRAY(REAL), comment="of the shards, in their order"),
)


def upgrade() -> None:
    """Add the lease, and columns to the history."""
    op.create_table(
        "coordinator_lease",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.Column("session_pid", sa.Integer),
        sa.Column("session_start", sa.DateTime(timezone=True)),
        sa.CheckConstraint("id = 1", name="coordinator_lease_has_one_row"),
    )
    # Touched twice a second: room for the new versions of its row beside the old ones.
    op.execute("ALTER TABLE coordinator_lease SET (fillfactor = 10)")
    op.execute("INSERT INTO coordinator_lease (id, epoch, holder, beat) VALUES (1, 0, '', 0)")
    for column in _ADDED:
        op.add_column("multiplier_history", column)


def downgrade() -> None:
    """Drop them."""
    for column in _ADDED:
        op.drop_column("multiplier_history", column.name)
    op.drop_table("coordinator_lease")
