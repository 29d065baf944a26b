"""What the receiver has handed on, by source, and how late it was.

Revision 0025.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; a receiver of the last release leaves it empty."""
    op.create_table(
        "ping_accounts",
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("signals", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("exact_signals", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("delay_seconds", sa.Double, nullable=False, server_default="0"),
    )


def downgrade() -> None:
    """Drop it: how late pings were is forgotten."""
    op.drop_table("ping_accounts")
