"""What is told of a host is what it has answered itself, and that it has, whatever came of it."""

import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from fleet import EXAMPLES, command_of, crawler, desk
from raw_web import answer, raw_host

SCRAPY = [
    *(sys.executable, "-m", "scrapy_freshet", "crawl", "--private-addresses"),
    *("--set", "DOWNLOAD_MAXSIZE=100000", "--set", "DOWNLOAD_TIMEOUT=3"),
]
BUSY = answer(503, Retry_After="86400")
PAGE = answer(200, b"<p>words</p>", Content_Type="text/html")
NOBODY = "http://127.0.0.1:1/"

TRAPS = {
    "scrapy": ["/loop", "/away", "/letter", "/odd", "/large", "/packed", "/cut", "/stalled"],
    "python": ["/loop", "/away", "/letter", "/odd", "/packed", "/cut"],
    "crawlee": [],
    "java": ["/loop", "/cut"],
}
"""What each crawler tells of pages that cannot be had."""


@asynccontextmanager
async def asked_of_two_hosts(broker):
    """A fleet's desk, the host that it is asked for, and another one."""
    async with AsyncExitStack() as stack:
        ours, other = [await stack.enter_async_context(raw_host()) for _ in range(2)]
        yield await stack.enter_async_context(desk(broker.bootstrap_servers)), ours, other


def lay_out(ours, other):
    """What the two hosts say; path of ours → result, status and pause that its crawl tells."""
    other.answers = {"/busy": BUSY, "/late": answer(429), "/page": PAGE, "/broken": answer(500)}
    other.answers |= {"/back": answer(302, Location=ours.url("/busy"))}
    ours.answers = {
        "/busy": BUSY,
        "/here": answer(302, Location="/busy"),
        "/there": answer(302, Location=other.url("/busy")),
        "/late": answer(307, Location=other.url("/late")),
        "/broken": answer(302, Location=other.url("/broken")),
        "/twice": answer(302, Location="/there"),
        "/page": answer(302, Location=other.url("/page")),
        "/nothing": answer(302, Location=other.url("/nothing")),
    }
    pause = 86_400
    return {
        "/busy": ("failed", 503, pause),
        "/here": ("failed", 503, pause),
        "/there": ("failed", 302, None),
        "/late": ("failed", 307, None),
        "/broken": ("failed", 302, None),
        "/twice": ("failed", 302, None),
        "/page": (None, 200, None),
        "/nothing": ("gone", 404, None),
    }


def lay_reloads(ours):
    """Pages that load themselves anew, as live ones do, or lead around; path → how often a crawl of
    each of them asks for it."""

    def leads(text, seconds, url):
        refresh = f'<meta http-equiv="refresh" content="{seconds}; url={url}">'
        body = f"<html><head>{refresh}</head><body>{text}</body></html>"
        return answer(200, body.encode(), Content_Type="text/html")

    ours.answers |= {
        "/live": leads("news", 60, "/live"),
        "/slides": leads("one", 10, "/slide"),
        "/slide": leads("two", 10, "/slides"),
        "/wall": leads("a cookie, and once more", 0, "/wall"),
    }
    return {"/live": 1, "/slides": 1, "/wall": 2}


def lay_traps(ours, paths):
    """Some pages that cannot be had of a host that is well; path → status that its crawl tells."""
    ours.answers |= {
        "/loop": answer(302, Location="/loop"),
        "/away": answer(302, Location=NOBODY),
        "/letter": answer(302, Location="mailto:[email protected]"),
        "/odd": answer(301, Location="http://[x/"),
        "/large": answer(200, bytes(200_000)),
        "/packed": answer(200, b"not packed", Content_Encoding="gzip", Content_Type="text/html"),
        "/cut": answer(200, b"<p>", length=1000, Content_Type="text/html"),
        "/stalled": answer(200, b"<p>", length=1000, Content_Type="text/html"),
    }
    ours.stalled = {"/stalled"}
    told = {"/loop": 302, "/away": 302, "/letter": 302, "/odd": 301}
    return {path: told.get(path, 200) for path in paths}


async def told_of(fleet, host, paths, command, log):
    """Path → outcome."""
    asked = {path: await fleet.ask(host.url(path), host.name) for path in paths}
    with crawler(command, fleet.settings, log):
        outcomes = await fleet.outcomes(len(asked))
    return {path: outcomes[request_id] for path, request_id in asked.items()}


@pytest.mark.slow(10)
async def test_scrapy_tells_of_a_host_what_it_answered_itself(local_broker, tmp_path):
    async with asked_of_two_hosts(local_broker) as (fleet, ours, other):
        expected = lay_out(ours, other)
        traps, reloads = lay_traps(ours, TRAPS["scrapy"]), lay_reloads(ours)
        command = [*SCRAPY, "--files", tmp_path / "pages"]
        paths = [*expected, *traps, *reloads]
        outcomes = await told_of(fleet, ours, paths, command, tmp_path / "log")

    said = {path: outcomes[path] for path in expected}
    assert {
        path: (one.result, one.http_status, one.retry_after_seconds) for path, one in said.items()
    } == expected
    assert {path: outcomes[path].http_status for path in traps} == traps
    assert {outcomes[path].result for path in traps} == {"failed"}
    assert {(outcomes[path].result, outcomes[path].http_status) for path in reloads} == {
        (None, 200)
    }
    assert {path: ours.seen[path] for path in reloads} == reloads


@pytest.mark.slow(6)
async def test_scrapy_leaves_a_host_alone_whose_robots_txt_is_in_trouble(local_broker, tmp_path):
    async with asked_of_two_hosts(local_broker) as (fleet, ours, _):
        ours.answers = {"/robots.txt": answer(500), "/page": PAGE}
        command = [*SCRAPY, "--files", tmp_path / "pages"]
        outcomes = await told_of(fleet, ours, ["/page"], command, tmp_path / "log")

    assert outcomes["/page"].result == "failed"
    assert ours.seen["/robots.txt"] > 0
    assert ours.seen["/page"] == 0


@pytest.mark.slow(6)
@pytest.mark.parametrize("example", ["python", "crawlee", "java"])
async def test_an_example_tells_of_a_host_what_it_answered_itself(example, local_broker, tmp_path):
    async with asked_of_two_hosts(local_broker) as (fleet, ours, other):
        expected = lay_out(ours, other)
        traps = lay_traps(ours, TRAPS[example])
        paths, command = [*expected, *traps], command_of(example)
        outcomes = await told_of(fleet, ours, paths, command, tmp_path / "log")

    said = {path: outcomes[path] for path in expected}
    if example == "crawlee":
        expected["/late"] = ("failed", 302, None)  # by which redirect, it does not tell
    assert {
        path: (one.result, one.http_status, one.retry_after_seconds) for path, one in said.items()
    } == expected
    assert {path: outcomes[path].http_status for path in traps} == traps
    assert {outcomes[path].result for path in traps} <= {"failed"}


@pytest.mark.slow(6)
async def test_javas_crawler_waits_for_no_page_for_ever_and_takes_none_without_end(
    local_broker, tmp_path
):
    code = (EXAMPLES / "java" / "Crawler.java").read_text()
    hasty = code.replace("PATIENCE_SECONDS = 60;", "PATIENCE_SECONDS = 2;")
    (tmp_path / "Crawler.java").write_text(hasty)
    command = [*command_of("java")[:-1], tmp_path / "Crawler.java"]
    async with asked_of_two_hosts(local_broker) as (fleet, ours, _):
        ours.answers = {
            "/stalled": answer(200, b"<p>", length=1000),
            "/large": answer(200, bytes(11_000_000)),
            "/page": PAGE,
        }
        ours.stalled = {"/stalled", "/large"}
        outcomes = await told_of(fleet, ours, [*ours.answers], command, tmp_path / "log")

    assert hasty != code
    assert outcomes["/page"].digest is not None
    for path in ("/stalled", "/large"):
        assert (outcomes[path].result, outcomes[path].http_status) == ("failed", 200)
