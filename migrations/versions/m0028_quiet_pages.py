"""What is found of quiet pages, and what is believed of them, by host.

Revision 0028.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
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
       signal_rate * (1 - precision) AS false_signal_rate, (
    SELECT name FROM page_classes AS class
    WHERE class.shard = page.shard AND class.number = page.page_class
) AS class
FROM (
    SELECT *, 1 - exp(-least(signal_evidence, 700)) AS precision
    FROM (
        SELECT shard, page_id, importance, signal_rate,
               {rate} AS unsignalled_change_rate,
               coalesce(nullif(signal_evidence, 'NaN'), -ln(1 - prior_precision),
                        ln(2.0)) AS signal_evidence, page_class
        FROM pages LEFT JOIN hosts USING (shard, host_id)
    ) AS known
) AS page
"""

_RATE = "coalesce(nullif(unsignalled_change_rate, 'NaN'), prior_shape / prior_rate, 1.0 / 60)"
_BELIEF = "CASE WHEN last_changed_at = '-infinity' THEN coalesce(quiet_belief, 1) ELSE 1 END"
"""Of a page whose host is not there: none."""


def upgrade() -> None:
    """Add the columns, without writing a row anew; an estimator of the last release leaves them as
    they are, and a belief that is not refitted any more stands."""
    for name, initial in (("quiet_found", "0"), ("quiet_predicted", "0"), ("quiet_belief", "1")):
        op.add_column("hosts", sa.Column(name, sa.Double, nullable=False, server_default=initial))
    op.execute(_ESTIMATES.format(rate=f"{_BELIEF} * {_RATE}"))


def downgrade() -> None:
    """Drop them: what crawls of quiet pages had come to is counted anew."""
    op.execute(_ESTIMATES.format(rate=_RATE))
    for name in ("quiet_found", "quiet_predicted", "quiet_belief"):
        op.drop_column("hosts", name)
