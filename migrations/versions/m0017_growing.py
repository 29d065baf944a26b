"""The growth of the number of shards: what it grew from, and how far the splits are.

Revision 0017.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_SPLIT = 3
"""The state of a shard that has been split."""


def upgrade() -> None:
    """Add the column and the table; a database that never grew has grown from what it has."""
    op.add_column("deployment", sa.Column("grown_from", sa.Integer))
    op.execute("UPDATE deployment SET grown_from = shards")
    op.alter_column("deployment", "grown_from", nullable=False)
    op.create_table(
        "shard_splits",
        sa.Column("parent", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("until", sa.Double, nullable=False, server_default="-infinity"),
        sa.Column("split_at", sa.Double),
    )
    # The scheduler and the command write in turn: room for the new versions beside the old ones.
    op.execute("ALTER TABLE shard_splits SET (fillfactor = 20)")


def downgrade() -> None:
    """Drop them; workers of before take every shard for one that has its hosts.

    Raises:
        RuntimeError: shards are still to be split, which only this version can do.
    """
    waiting = op.get_bind().scalar(
        sa.text("SELECT count(*) FROM shard_splits WHERE state <> :split"), {"split": _SPLIT}
    )
    if waiting:
        raise RuntimeError(
            f"a growth is under way, {waiting} shards are still to be split: let "
            "`freshet shards grow` end first"
        )
    op.drop_table("shard_splits")
    op.drop_column("deployment", "grown_from")
