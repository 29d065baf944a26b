"""What was predicted of each crawl, beside what it found.

Revision 0013.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_COLUMNS = (("staleness", sa.REAL), ("fresh_days", sa.REAL), ("sources", sa.SmallInteger))


def upgrade() -> None:
    """Add the columns, NULL in rows that there are; no row is written anew for them."""
    for name, kind in _COLUMNS:
        op.add_column("observations", sa.Column(name, kind()))


def downgrade() -> None:
    """Drop them."""
    for name, _ in reversed(_COLUMNS):
        op.drop_column("observations", name)
