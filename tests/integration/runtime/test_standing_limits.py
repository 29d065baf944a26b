"""Limits of groups are read, also before the topic is made: after an upgrade, say."""

import uuid

from workers import settings_for

from services.cli.group_limits import publish_limit, standing_limits
from shared.runtime.kafka import ensure_topics


async def test_without_its_topic_no_group_has_a_limit(broker):
    settings = settings_for(broker.bootstrap_servers, f"t{uuid.uuid4().hex[:8]}-")
    assert await standing_limits(settings) == {}
    await ensure_topics(settings)
    assert await standing_limits(settings) == {}
    for group, rate in (("b.example", 2.0), ("a.example", 1.0), ("b.example", None)):
        await publish_limit(settings, group, rate)
    assert await standing_limits(settings) == {"a.example": 1.0}
