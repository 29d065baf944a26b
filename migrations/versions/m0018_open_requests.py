"""How many requests of a host may be open at once, as operators say.

Revision 0018.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; an estimator of the last release leaves it as it is."""
    op.add_column("hosts", sa.Column("max_open_requests", sa.SmallInteger))


def downgrade() -> None:
    """Drop it: hosts are asked for as often as their rates allow, however slow their answers."""
    op.drop_column("hosts", "max_open_requests")
