"""Partitions of `observations` by functions, so that the estimator need not own the tables.

Revision 0003. Who may do what is in `shared.store.roles`, which `freshet migrate` applies.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ADD = """
CREATE FUNCTION freshet_add_observations(number bigint, seconds double precision)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
BEGIN
    -- Two estimators may come here at the same moment.
    PERFORM pg_advisory_xact_lock(hashtext('freshet observations'));
    IF to_regclass('observations_' || number) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'CREATE TABLE observations_%s PARTITION OF observations FOR VALUES FROM (%L) TO (%L)',
        number, number * seconds, (number + 1) * seconds);
    RETURN true;
END $$
"""

_DROP = """
CREATE FUNCTION freshet_drop_observations(number bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhparent = 'observations'::regclass
               AND inhrelid = to_regclass('observations_' || number)) THEN
        EXECUTE format('DROP TABLE observations_%s', number);
    END IF;
END $$
"""

_FUNCTIONS = (
    "freshet_add_observations(bigint, double precision)",
    "freshet_drop_observations(bigint)",
)


def upgrade() -> None:
    """Make the functions; nobody but their owner may call them yet."""
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    for statement in (_ADD, _DROP):
        op.execute(statement.format(schema=schema))
    for function in _FUNCTIONS:
        op.execute(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")


def downgrade() -> None:
    """Drop them; the roles are of the whole server, and stay."""
    for function in _FUNCTIONS:
        op.execute(f"DROP FUNCTION {function}")
