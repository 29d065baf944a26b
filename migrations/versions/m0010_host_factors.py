"""What the directories and signals of pages say of how often they change, by host.

Revision 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no row is written anew for it."""
    op.add_column("hosts", sa.Column("factors", sa.LargeBinary, nullable=False, server_default=""))


def downgrade() -> None:
    """Drop it: the next refits find it out again."""
    op.drop_column("hosts", "factors")
