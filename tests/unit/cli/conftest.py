"""Commands without servers."""

import pytest

from services.cli import broker_time


@pytest.fixture(autouse=True)
def told_time(monkeypatch):
    """No broker need be asked for its time, which is this machine's."""

    async def nothing_amiss(_settings):
        return None

    monkeypatch.setattr(broker_time, "_measured", nothing_amiss)
