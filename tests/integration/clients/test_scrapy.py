"""A Scrapy spider as a member of the fleet: `scrapy-freshet crawl` on a real broker and web."""

import asyncio
import signal
import sys

import pytest
from fleet import crawler, desk
from scrapy_freshet.storage import body_file
from warcio.archiveiterator import ArchiveIterator
from website import website
from workers import reader

from shared.contracts.codec import decode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.runtime.tracing import Mark

MARK = Mark(7, 9)

CRAWL = [
    *(sys.executable, "-m", "scrapy_freshet", "crawl", "--private-addresses"),
    *("--set", "FRESHET_REDIRECTED=true"),
]


def bodies(folder):
    """URL → content of the pages in WARC files."""
    found = {}
    for file in folder.glob("*.warc.gz"):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream):
                if record.rec_type == "response":
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    found[url] = record.content_stream().read()
    return found


@pytest.mark.slow(8)
async def test_each_request_gets_one_outcome_whatever_the_web_says(local_broker, tmp_path):
    async with website(80) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        ask = {number: await fleet.ask(site.url(number), host) for number in (0, 0, 1, 29, 38, 49)}
        again = await fleet.ask(site.url(0), host, trace=MARK)
        forbidden = await fleet.ask(f"http://{host}/private/1", host)
        nobody = await fleet.ask("http://127.0.0.1:1/page/1", "127.0.0.1:1")
        old = await fleet.ask(f"http://{host}/old/3", host)
        late = await fleet.ask(site.url(2), host, seconds=-5)
        log = tmp_path / "log"
        with crawler([*CRAWL, "--files", tmp_path / "pages"], fleet.settings, log) as process:
            outcomes = await fleet.outcomes(10)
            async with reader(fleet.settings, HOST_LIMITS) as limits:
                [limit] = await limits.until(bool)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        text = log.read_text()

    assert fleet.traces() == {again: MARK}
    content = [outcomes[ask[number]] for number in (0, 1, 29, 38)] + [outcomes[again]]
    assert all(o.digest and o.http_status == 200 and o.result is None for o in content)
    assert outcomes[ask[0]].digest == outcomes[again].digest != outcomes[ask[1]].digest
    assert outcomes[ask[49]].result == "gone"
    assert (outcomes[forbidden].result, outcomes[forbidden].http_status) == ("disallowed", None)
    assert (outcomes[old].result, outcomes[old].redirected_to) == ("redirected", site.url(3))
    assert outcomes[nobody].result == "failed"
    assert late not in outcomes
    assert site.seen["/page/2"] == site.seen["/private/1"] == 0
    for number in (0, 1, 29):
        assert body_file(tmp_path / "pages", site.url(number)).read_bytes() == site.body(number)
    assert body_file(tmp_path / "pages", site.url(38)).read_bytes() == site.body(37)
    assert body_file(tmp_path / "pages", f"http://{host}/old/3").read_bytes() == site.body(3)
    told = decode(HostLimit, limit.value)
    assert (told.host, told.max_crawls_per_second) == (host, 0.25)
    assert "'freshet/requests/expired': 1" in text
    assert "given_up" not in text


@pytest.mark.slow(20)
async def test_a_crawler_that_is_killed_leaves_what_it_has_not_answered_to_the_next(
    local_broker, tmp_path
):
    async with website(80) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        command = [*CRAWL, "--warc", tmp_path / "warc"]
        site.busy = True
        first = await fleet.ask(site.url(0), host)
        with crawler(command, fleet.settings, tmp_path / "log") as process:
            outcome = (await fleet.outcomes(1))[first]
            assert (outcome.result, outcome.http_status) == ("failed", 429)
            assert outcome.retry_after_seconds == 7
            # Twice the time between two commits.
            await asyncio.sleep(2.0)
            site.busy = False
            site.answering.clear()
            second = await fleet.ask(site.url(1), host)
            await site.asked("/page/1")
            process.kill()
            process.wait()
        site.answering.set()
        with crawler(command, fleet.settings, tmp_path / "log") as process:
            outcomes = await fleet.outcomes(2)
            assert outcomes[second].digest
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0

    assert site.seen["/page/0"] == 1
    assert site.seen["/page/1"] == 2
    assert list((tmp_path / "warc").glob("*.open")) == []
    assert bodies(tmp_path / "warc") == {site.url(1): site.body(1)}


@pytest.mark.slow(8)
async def test_a_host_that_does_not_answer_keeps_no_other_from_being_crawled(
    local_broker, tmp_path
):
    async with website(80) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        other = host.replace("127.0.0.1", "localhost")
        site.odd = {"/quick": (200, {})}
        site.answering.clear()
        slow = [await fleet.ask(site.url(number), host) for number in range(30)]
        quick = await fleet.ask(f"http://{other}/quick", other)
        command = [*CRAWL, "--files", tmp_path / "pages", "--set", "CONCURRENT_REQUESTS=16"]
        with crawler(command, fleet.settings, tmp_path / "log"):
            assert list(await fleet.outcomes(1)) == [quick]
            assert sum(site.seen[f"/page/{number}"] for number in range(30)) <= 8
            site.answering.set()
            outcomes = await fleet.outcomes(31)

    assert {outcomes[one].http_status for one in slow} == {200}
