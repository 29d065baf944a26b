"""Who erases pages is told which are still there: newer ones, and those that nobody can erase."""

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, upsert
from taken_messages import Taken, publish_by

from services.cli import erasing
from services.cli.errors import SystemFailed
from services.estimator.columns import REMOVE
from shared.contracts.codec import decode
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES

HOST = "erased.example"
OLD = [f"https://{HOST}/old/{number}" for number in range(3)]
NEWER = f"https://{HOST}/newer"
AT = NOW + 5 * DAY


@pytest.fixture
async def erase(settings, start, kafka, monkeypatch):
    """What the commands do with parts of pages; an estimator applies what they publish."""
    handler = await start(kafka)
    await handler.handle(kafka.batch(*(upsert(url) for url in OLD), upsert(NEWER, AT + 1)))

    class Publisher(Taken):
        async def partitions_of(self, _topic):
            return SHARDS

        async def send(self, *_, **__):
            return self.flush()

        async def send_batches(self, messages):
            values = [value for part in messages.values() for _, value in part]
            batch = kafka.batch(*(decode(PageUpdate, value) for value in values))
            await handler.handle(batch)
            return {
                (PAGE_UPDATES.name, shard): records[-1].offset + 1
                for shard, records in batch[PAGE_UPDATES.name].items()
            }

    publish_by(monkeypatch, Publisher)
    monkeypatch.setattr(erasing, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr("shared.runtime.clock.SystemClock.now", lambda _: AT)

    async def run(*parts, host=None):
        return await erasing._erased(settings, iter([*parts, []]), host)

    return run


def known(settings):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return sorted(url for (url,) in connection.execute("SELECT url FROM page_urls"))


async def test_a_page_of_which_something_newer_is_known_is_left_and_counted(settings, erase):
    assert await erase([OLD[0], NEWER], [OLD[1]]) == (2, 1)
    assert known(settings) == [NEWER, OLD[2]]
    assert await erase([OLD[2]]) == (1, 0)


async def test_of_a_host_they_are_counted_once(settings, erase):
    assert await erase(OLD, [NEWER], host=identify(f"https://{HOST}/")) == (3, 1)
    assert known(settings) == [NEWER]


async def test_what_an_estimator_of_before_has_only_removed_is_told_apart(
    settings, erase, monkeypatch
):
    monkeypatch.setattr("services.estimator.decoding.ERASE", REMOVE)
    with pytest.raises(SystemFailed, match="an estimator of an older version"):
        await erase(OLD)
    assert known(settings) == sorted([*OLD, NEWER])
