"""URLFrontier's own Java client, as Maven Central has it, is served."""

import asyncio
import subprocess

import pytest
from apache import need_apache_kafka
from workers import reader

from deploy.docs.places import TOP
from deploy.local.java import resolve_jars
from shared.contracts.codec import decode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS

FOLDER = TOP / "tests" / "integration" / "frontier" / "urlfrontier-client"
PAGES = [f"https://a.example/{n}" for n in range(5)]


@pytest.mark.kafka
@pytest.mark.slow(6)
async def test_the_client_that_java_fleets_use_is_served(start):
    need_apache_kafka(FOLDER / "pom.xml")
    frontier = await start()
    ids = await frontier.ask(*PAGES)
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{resolve_jars(FOLDER / 'pom.xml')}/*"]
    fleet = await asyncio.to_thread(
        subprocess.run,
        [*java, FOLDER / "Fleet.java", frontier.address, str(len(PAGES))],
        capture_output=True,
        text=True,
        timeout=120,
    )

    said = fleet.stdout.splitlines()
    assert fleet.returncode == 0, fleet.stderr
    assert set(said[:-3]) == {f"put {url} OK" for url in PAGES}
    assert said[-3:] == ["active false", "crawls [DEFAULT]", "delete UNIMPLEMENTED"]
    outcomes = await frontier.outcomes(len(PAGES))
    assert {outcome.request_id for outcome in outcomes.values()} == set(ids)
    async with reader(frontier.settings, HOST_LIMITS) as topic:
        records = await topic.until(lambda got: len(got) >= 2)
    assert [decode(HostLimit, record.value) for record in records] == [
        HostLimit("a.example", blocked_until=1.0, only="block"),
        HostLimit("a.example", crawl_delay_seconds=9.0, only="crawl-delay"),
    ]
