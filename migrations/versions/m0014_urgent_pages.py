"""When somebody asked last for a page to be crawled at once.

Revision 0014.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no row is written anew for it. Rows are longer by it when they are: a little
    more room keeps their updates HOT."""
    op.add_column(
        "pages", sa.Column("urgent_at", sa.Double, nullable=False, server_default="-infinity")
    )
    _leave_room(82)


def downgrade() -> None:
    """Drop it: what was asked for and not crawled yet is not urgent any more."""
    op.drop_column("pages", "urgent_at")
    _leave_room(85)


def _leave_room(fillfactor: int) -> None:
    partitions = sa.text(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pages'::regclass"
    )
    for (partition,) in op.get_bind().execute(partitions).all():
        op.execute(f"ALTER TABLE {partition} SET (fillfactor = {fillfactor})")
