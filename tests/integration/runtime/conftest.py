"""Topics of their own for tests of members, and who publishes to them."""

import uuid

import pytest
from group_member import settings_for

from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher


@pytest.fixture
async def prefix(broker):
    prefix = f"t{uuid.uuid4().hex}."
    await ensure_topics(settings_for(broker, prefix))
    return prefix


@pytest.fixture
async def publisher(broker, prefix):
    made = Publisher(settings_for(broker, prefix))
    await made.start()
    yield made
    await made.stop()
