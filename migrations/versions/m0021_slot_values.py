"""What a slot was worth when λ₀ was decided, for the price of polls.

Revision 0021.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; coordinators of the last release leave it empty."""
    op.add_column("multiplier_history", sa.Column("slot_value", sa.Double))


def downgrade() -> None:
    """Drop it; polls are priced by λ₀ itself."""
    op.drop_column("multiplier_history", "slot_value")
