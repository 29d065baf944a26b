"""The group that crawl outcomes say a host is of, as the address that it is at.

Revision 0023.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; an estimator of the last release leaves them as they are."""
    op.add_column("hosts", sa.Column("named_group", sa.Text))
    op.add_column(
        "hosts", sa.Column("named_since", sa.Double, server_default="-infinity", nullable=False)
    )


def downgrade() -> None:
    """Drop them: limits of such groups hold for nobody."""
    op.drop_column("hosts", "named_since")
    op.drop_column("hosts", "named_group")
