"""Which scheduler has loaded a shard last, and what is tidied up after a split.

What others than that scheduler say of a split is not heard.

Revision 0027.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_TIDIED = ("urls_deleted_at", "observations_moved_at")


def upgrade() -> None:
    """Add the table; a shard's row is made by the first scheduler that loads it from now on.

    What a growth before has left is looked for once more.
    """
    op.create_table(
        "shard_claims",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("claim", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )
    for column in _TIDIED:
        op.add_column("shard_splits", sa.Column(column, sa.Double))


def downgrade() -> None:
    """Drop them: a scheduler of before holds a shard also where another has taken it over."""
    for column in _TIDIED:
        op.drop_column("shard_splits", column)
    op.drop_table("shard_claims")
