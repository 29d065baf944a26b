"""Sites that the poller watches, and where their sitemaps and feeds stand.

Revision 0012.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; other workers do not look at them."""
    op.create_table(
        "watched_sites",
        sa.Column("site", sa.Text, primary_key=True),
        sa.Column("hosts", ARRAY(sa.Text), nullable=False),
        sa.Column("include", ARRAY(sa.Text), nullable=False),
        sa.Column("exclude", ARRAY(sa.Text), nullable=False),
    )
    op.create_table(
        "watched_sources",
        sa.Column("url", sa.Text, primary_key=True),
        sa.Column("site", sa.Text, sa.ForeignKey("watched_sites.site"), nullable=False, index=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False, server_default=""),
        sa.Column("found_by", sa.Text, nullable=False),
        sa.Column("etag", sa.Text, nullable=False, server_default=""),
        sa.Column("last_modified", sa.Text, nullable=False, server_default=""),
        sa.Column("digest", sa.LargeBinary, nullable=False, server_default=""),
        sa.Column("seen", sa.LargeBinary, nullable=False, server_default=""),
        sa.Column("interval_seconds", sa.Double, nullable=False, server_default="0"),
        sa.Column("next_poll_at", sa.Double, nullable=False, server_default="-infinity"),
        sa.Column("polled_at", sa.Double, nullable=False, server_default="-infinity"),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("entries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("pages", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("signals", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("exact_signals", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("delay_seconds", sa.Double, nullable=False, server_default="0"),
    )


def downgrade() -> None:
    """Drop them; nothing is watched any more."""
    op.drop_table("watched_sources")
    op.drop_table("watched_sites")
