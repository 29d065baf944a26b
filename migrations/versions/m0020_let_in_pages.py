"""Which pages links have made of late, and how many of each host: for quotas that hold exactly.

Revision 0020.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; discoverers and frontiers of the last release do not look at them."""
    op.create_table(
        "let_in_hosts",
        sa.Column("host_id", sa.BigInteger, primary_key=True),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("pages", sa.BigInteger, nullable=False, server_default="0"),
    )
    now = sa.text("extract(epoch FROM now())")
    op.create_table(
        "let_in_pages",
        sa.Column("page_id", sa.BigInteger, primary_key=True),
        sa.Column("host_id", sa.BigInteger, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("let_in_at", sa.Double, nullable=False, server_default=now),
    )


def downgrade() -> None:
    """Drop them; of several discoverers each keeps quotas by what it lets in itself."""
    op.drop_table("let_in_pages")
    op.drop_table("let_in_hosts")
