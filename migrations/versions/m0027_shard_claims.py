"""Which scheduler has loaded a shard last: what it says of a split is heard, and nobody else's.

Revision 0027.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; a shard's row is made by the first scheduler that loads it from now on."""
    op.create_table(
        "shard_claims",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("claim", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drop it: a scheduler of before holds a shard also where another has taken it over."""
    op.drop_table("shard_claims")
