"""When each source of a page sent its last signal, where several have sent any.

Revision 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no row is written anew for it."""
    op.add_column(
        "pages", sa.Column("signal_times", sa.LargeBinary, nullable=False, server_default="")
    )
    # Always in the row, as the history is.
    op.execute("ALTER TABLE pages ALTER COLUMN signal_times SET STORAGE PLAIN")


def downgrade() -> None:
    """Drop it: of several sources only the latest signal is known then."""
    op.drop_column("pages", "signal_times")
