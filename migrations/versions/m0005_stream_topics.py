"""Which topics the positions are about: one that is made anew has its old name, but another id.

Revision 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; it is filled when workers start."""
    op.create_table(
        "stream_topics",
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("topic_id", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("stream_topics")
