"""How Alembic reaches the database: through `freshet migrate`, or from its own command line."""

from alembic import context
from sqlalchemy import Connection

from migrations.engine import alchemy_engine
from shared.runtime.settings import load_settings
from shared.store.models_outside import ALL_TABLES


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=ALL_TABLES)
    with context.begin_transaction():
        context.run_migrations()


_given = context.config.attributes.get("connection")
if _given is not None:
    _run(_given)
else:
    with alchemy_engine(load_settings().database_url.get_secret_value()).begin() as _own:
        _run(_own)
