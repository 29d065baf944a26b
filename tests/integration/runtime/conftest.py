"""Topics of their own for tests of members, and settings for who publishes to them."""

import uuid

import pytest
from group_member import settings_for

from shared.runtime.kafka import ensure_topics


@pytest.fixture
async def prefix(broker):
    prefix = f"t{uuid.uuid4().hex}."
    await ensure_topics(settings_for(broker, prefix))
    return prefix


@pytest.fixture
def settings(broker, prefix):
    return settings_for(broker, prefix)
