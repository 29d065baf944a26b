"""Limits of groups are read, also before the topic is made: after an upgrade, say."""

import uuid

from apache import ONCE
from workers import settings_for

from services.cli.group_limits import publish_limit, room_for_limits, standing_limits
from shared.pacing import groups
from shared.runtime.growing import add_partitions
from shared.runtime.kafka import ensure_topics


async def test_without_its_topic_no_group_has_a_limit(broker):
    settings = settings_for(broker.bootstrap_servers, f"t{uuid.uuid4().hex[:8]}-")
    assert await standing_limits(settings) == {}
    await ensure_topics(settings)
    assert await standing_limits(settings) == {}
    for group, rate in (("b.example", 2.0), ("a.example", 1.0), ("b.example", None)):
        await publish_limit(settings, group, rate)
    assert await standing_limits(settings) == {"a.example": 1.0}


@ONCE
async def test_after_a_growth_there_is_room_for_as_many_as_coordinators_can_keep(
    broker, monkeypatch
):
    """Settings go on saying the number of before."""
    settings = settings_for(broker.bootstrap_servers, f"t{uuid.uuid4().hex[:8]}-", partitions=2)
    monkeypatch.setattr(groups, "ROOM_BYTES", 8 * groups.SHARE_BYTES)
    assert await room_for_limits(settings) == groups.most_groups(2) == 4
    await ensure_topics(settings)
    await add_partitions(settings, 4)
    assert await room_for_limits(settings) == groups.most_groups(4) == 2
