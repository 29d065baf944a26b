"""What the receiver has subscribed to and wants to, and where the poller's streams stand.

Revision 0009.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; other workers do not look at them."""
    op.create_table(
        "websub_subscriptions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, nullable=False, unique=True),
        sa.Column("wanted_hub", sa.Text),
        sa.Column("hub", sa.Text, nullable=False, server_default=""),
        sa.Column("hub_topic", sa.Text, nullable=False, server_default=""),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_ends", sa.Double, nullable=False, server_default="-infinity"),
        sa.Column("next_try_at", sa.Double, nullable=False, server_default="-infinity"),
    )
    op.create_table(
        "stream_cursors",
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("cursor", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop them; hubs find that nobody wants their content any more."""
    op.drop_table("stream_cursors")
    op.drop_table("websub_subscriptions")
