"""Pages whose requests nobody answers.

Revision 0029.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; a scheduler of the last release neither reads nor writes it."""
    op.create_table(
        "unanswered_pages",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("page_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("requests", sa.SmallInteger, nullable=False),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("deadline_at", sa.Double, nullable=False),
        sa.Column("last_attempt_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drop it: a scheduler that loads a shard takes what nobody answers for new again."""
    op.drop_table("unanswered_pages")
