"""Questions to a database that cannot answer them."""

import contextlib

import psycopg
import pytest

from shared.store import questions
from shared.store.deployment import UNMIGRATED, StoreMismatch
from shared.store.questions import Questions


async def test_a_database_without_tables_counts_as_one_that_is_away(monkeypatch):
    def layout(_connection):
        raise StoreMismatch(UNMIGRATED)

    monkeypatch.setattr(questions, "connect", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(questions, "require_schema", lambda _connection: None)
    asking = Questions("postgresql://", "test")
    with pytest.raises(psycopg.OperationalError, match="freshet migrate"):
        await asking.ask(layout)
    asking.stop()
