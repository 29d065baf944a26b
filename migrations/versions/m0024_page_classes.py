"""Classes of pages, by number, and the names of these.

Revision 0024.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


_ESTIMATES = """
CREATE OR REPLACE VIEW page_estimates AS
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
       signal_rate * (1 - precision) AS false_signal_rate{more}
FROM (
    SELECT *, 1 - exp(-least(signal_evidence, 700)) AS precision
    FROM (
        SELECT shard, page_id, importance, signal_rate,
               coalesce(nullif(unsignalled_change_rate, 'NaN'), prior_shape / prior_rate,
                        1.0 / 60) AS unsignalled_change_rate,
               coalesce(nullif(signal_evidence, 'NaN'), -ln(1 - prior_precision),
                        ln(2.0)) AS signal_evidence{number}
        FROM pages LEFT JOIN hosts USING (shard, host_id)
    ) AS known
) AS page
"""

_CLASS = """, (
    SELECT name FROM page_classes AS class
    WHERE class.shard = page.shard AND class.number = page.page_class
) AS class"""


def upgrade() -> None:
    """Add the column, without writing a row anew, and the table; an estimator of the last release
    leaves both as they are."""
    op.add_column(
        "pages", sa.Column("page_class", sa.SmallInteger, nullable=False, server_default="0")
    )
    op.create_table(
        "page_classes",
        sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.execute(_ESTIMATES.format(more=_CLASS, number=", page_class"))


def downgrade() -> None:
    """Drop them: no page has a class any more."""
    op.execute("DROP VIEW page_estimates")
    op.execute(_ESTIMATES.format(more="", number=""))
    op.drop_table("page_classes")
    op.drop_column("pages", "page_class")
