"""Who writes a shard, and which pages came by import.

Revision 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; a shard's row is made by its first owner."""
    op.create_table(
        "shard_owners",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("announcing_pages", sa.LargeBinary, nullable=False, server_default=""),
        sa.Column("announcing_hosts", sa.LargeBinary, nullable=False, server_default=""),
    )
    # Every batch writes every row: room for the new versions beside the old ones.
    op.execute("ALTER TABLE shard_owners SET (fillfactor = 10, toast_tuple_target = 8160)")
    op.create_table(
        "page_imports",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("page_ids", sa.LargeBinary, nullable=False),
        sa.Column("imported_at", sa.Double, nullable=False),
    )
    # Hashes cannot be compressed; the attempt costs more than all else.
    for table, columns in (
        ("shard_owners", ("announcing_pages", "announcing_hosts")),
        ("page_imports", ("page_ids",)),
    ):
        for column in columns:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Drop them."""
    op.drop_table("page_imports")
    op.drop_table("shard_owners")
