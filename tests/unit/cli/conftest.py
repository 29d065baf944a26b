"""Commands without servers."""

import pytest

from services.cli import broker_time
from shared.store import asking_all


@pytest.fixture(autouse=True)
def told_time(monkeypatch):
    """No broker need be asked for its time, which is this machine's."""

    async def nothing_amiss(_settings):
        return None

    monkeypatch.setattr(broker_time, "_measured", nothing_amiss)


@pytest.fixture(autouse=True)
def unseen_databases(monkeypatch):
    """Nor which shards a database has."""
    monkeypatch.setattr(asking_all, "_has_its_shards", lambda *_: False)
