"""Which shards a database has, where they are shared out among several.

Revision 0022.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a database of before has all shards."""
    op.add_column("deployment", sa.Column("shards_held", sa.Text))


def downgrade() -> None:
    """Drop it.

    Raises:
        RuntimeError: the release before would look for all shards in each of several databases.
    """
    if op.get_bind().scalar(sa.text("SELECT shards_held FROM deployment")) is not None:
        raise RuntimeError("there are several databases, which only this version knows")
    op.drop_column("deployment", "shards_held")
