"""Who changed the budget and the limits of hosts.

Revision 0011.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "operator_changes",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("change", JSONB, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("operator_changes")
