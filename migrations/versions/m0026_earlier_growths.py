"""How many shards there were before earlier growths.

Revision 0026.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of growths before the last one nothing is known so far."""
    op.add_column(
        "deployment",
        sa.Column("earlier_shards", ARRAY(sa.Integer), nullable=False, server_default="{}"),
    )


def downgrade() -> None:
    """Drop it: what still stands on partitions of before an earlier growth is refused."""
    op.drop_column("deployment", "earlier_shards")
