"""Pages, their URLs, hosts, observations, stream positions and the history of multipliers.

Revision 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ESTIMATES = """
CREATE VIEW page_estimates AS
SELECT shard, page_id, importance,
       unsignalled_change_rate + signal_rate * precision AS change_rate,
       unsignalled_change_rate,
       CASE WHEN unsignalled_change_rate > 0 THEN signal_evidence / unsignalled_change_rate
            ELSE 'infinity' END AS signal_time_equivalent,
       signal_evidence, signal_rate, precision,
       CASE WHEN signal_rate * precision > 0
            THEN signal_rate * precision
                 / (unsignalled_change_rate + signal_rate * precision)
            ELSE 0 END AS recall,
       signal_rate * (1 - precision) AS false_signal_rate
FROM (
    SELECT *, 1 - exp(-least(signal_evidence, 700)) AS precision
    FROM (
        SELECT shard, page_id, importance, signal_rate,
               coalesce(nullif(unsignalled_change_rate, 'NaN'), prior_shape / prior_rate,
                        1.0 / 60) AS unsignalled_change_rate,
               coalesce(nullif(signal_evidence, 'NaN'), -ln(1 - prior_precision),
                        ln(2.0)) AS signal_evidence
        FROM pages LEFT JOIN hosts USING (shard, host_id)
    ) AS known
) AS page
"""


def _time(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _rate(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


def _page_key() -> tuple[sa.Column[int], sa.Column[int]]:
    return (
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("page_id", sa.BigInteger, primary_key=True, autoincrement=False),
    )


def _create_pages() -> None:
    op.create_table(
        "pages",
        *_page_key(),
        sa.Column("host_id", sa.BigInteger, nullable=False),
        _rate("importance"),
        _rate("max_age_days"),
        _rate("unsignalled_change_rate"),
        _rate("signal_evidence"),
        _rate("signal_rate"),
        _time("first_seen_at"),
        _time("last_crawled_at"),
        _time("last_attempt_at"),
        _time("last_changed_at"),
        _time("last_signal_at"),
        _time("updated_at"),
        sa.Column("digest", sa.BigInteger, nullable=False),
        sa.Column("signal_count", sa.BigInteger, nullable=False),
        _count("signals"),
        _count("crawls"),
        _count("changes"),
        _count("failures"),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("history", sa.LargeBinary, nullable=False),
        postgresql_partition_by="LIST (shard)",
    )
    # Always in the row: a history out of line would cost a second write, and it is short.
    op.execute("ALTER TABLE pages ALTER COLUMN history SET STORAGE PLAIN")
    op.create_table(
        "page_urls",
        *_page_key(),
        sa.Column("url", sa.Text, nullable=False),
        postgresql_partition_by="LIST (shard)",
    )


def upgrade() -> None:
    """Make the tables; `migrations.upgrade` makes the partitions."""
    op.create_table(
        "deployment",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        _count("shards"),
        sa.CheckConstraint("id = 1", name="deployment_has_one_row"),
    )
    _create_pages()
    op.create_table(
        "hosts",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("host_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("max_crawls_per_second", sa.Double),
        _time("blocked_until"),
        _time("limit_updated_at"),
        sa.Column("prior_shape", sa.Double),
        sa.Column("prior_rate", sa.Double),
        sa.Column("prior_precision", sa.Double),
        sa.Column("sources", sa.Text, nullable=False),
        sa.Column("learning", sa.LargeBinary),
    )
    op.execute("ALTER TABLE hosts SET (fillfactor = 85)")
    op.execute("ALTER TABLE hosts ALTER COLUMN learning SET STORAGE PLAIN")
    op.execute(_ESTIMATES)
    op.create_table(
        "observations",
        sa.Column("shard", sa.SmallInteger, nullable=False),
        sa.Column("page_id", sa.BigInteger, nullable=False),
        _time("recorded_at"),
        _time("crawled_at"),
        sa.Column("interval_days", sa.Double, nullable=False, comment="since the crawl before"),
        sa.Column("signals", sa.Integer, nullable=False, comment="in the interval"),
        sa.Column("changed", sa.Boolean, nullable=False),
        postgresql_partition_by="RANGE (recorded_at)",
    )
    op.create_table(
        "stream_positions",
        sa.Column("consumer", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
    )
    # Rewritten with every batch: room for the new versions beside the old ones.
    op.execute("ALTER TABLE stream_positions SET (fillfactor = 20)")
    op.create_table(
        "multiplier_history",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        _time("computed_at"),
        _time("effective_at"),
        _rate("multiplier"),
        _rate("crawls_per_second"),
        sa.Column("cause", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop everything, the partitions with their tables."""
    op.execute("DROP VIEW page_estimates")
    for table in (
        "multiplier_history",
        "stream_positions",
        "observations",
        "hosts",
        "page_urls",
        "pages",
        "deployment",
    ):
        op.drop_table(table)
