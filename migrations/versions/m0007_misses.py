"""How many 404s in a row a page has had.

Revision 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no row is written anew for it."""
    op.add_column("pages", sa.Column("misses", sa.SmallInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop it: a page is gone with its first 404 then."""
    op.drop_column("pages", "misses")
