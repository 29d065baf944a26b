"""`freshet demo` as a user runs it: real sites, all workers, Scrapy, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scratch import leftovers

from deploy.docs.places import TOP

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

SITES = 6
"""One of each kind up to the careless one: dates, pings, 429, a feed, lies."""
PAGES = 8


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    # A system of somebody else's that must not be touched.
    environment = os.environ | {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DATABASE_URL": "postgresql://127.0.0.1:1/theirs",
        "FRESHET_TOPIC_PREFIX": "theirs-",
        "PYTHONPATH": f"{TOP}:{TOP / 'clients' / 'scrapy-freshet'}",
    }
    command = [sys.executable, "-m", "services.cli.main", "demo", "--data-dir", "data", "--json"]
    return subprocess.Popen(
        [*command, *options],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.slow(35)
@pytest.mark.timeout(300)
@pytest.mark.long
def test_copies_of_real_sites_are_kept_fresh(system_dir: Path) -> None:
    options = ("--seconds", "18", "--sites", str(SITES), "--pages", str(PAGES))
    demo = start(system_dir, *options, "--crawls-per-second", "10/s")
    output, said = demo.communicate(timeout=280)

    assert demo.returncode == 0, said
    report = json.loads(output)
    assert (report["sites"], report["interrupted"]) == (SITES, False)
    # Each page was fetched, and what is kept of it is what its site has served.
    copies = report["copies_at_the_end"]
    assert copies["pages"] == SITES * PAGES
    assert copies["missing"] == copies["unknown"] == 0, said
    # Whoever fetched each page once would hold less at the end.
    late = report["freshness_of_the_second_half"]
    assert late["fresh"] > late["once"], said
    # One outcome a request.
    requests = report["requests"]
    assert requests["made"] > copies["pages"]
    assert requests["unanswered"] == requests["answered_twice"] == 0
    assert requests["answered"] == requests["made"]
    # Old addresses are asked for once.
    assert SITES <= requests["results"]["redirected"] < 2 * SITES, requests
    # Each ping that was taken is a signal (one whose answer was lost is sent again); sitemaps and
    # feeds made some, too.
    pings = sum(n for source, n in report["signals"].items() if source.startswith("indexnow"))
    assert pings >= report["pings"]["taken"] > 5
    assert report["pings"]["refused"] or pings == report["pings"]["taken"]
    assert report["signals"]["sitemaps and feeds"] > 0
    assert report["dead_letters"] == 0
    # Everybody is polite.
    visits = report["visits"]
    assert visits["private_by_crawlers"] == visits["while_to_be_left_alone"] == 0, visits
    assert visits["turned_away"] > 0
    assert set(report["restarts"].values()) == {0}, report["restarts"]
    assert leftovers(system_dir) == []


@pytest.mark.slow(15)
@pytest.mark.timeout(200)
def test_ctrl_c_stops_all_of_it(system_dir: Path) -> None:
    demo = start(system_dir, "--sites", "1")
    # The crawler is the last one to be started.
    log = system_dir / "data" / "system" / "logs" / "crawler.log"
    deadline = time.monotonic() + 120
    while not log.exists() and demo.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert log.exists()
    demo.send_signal(signal.SIGINT)
    output, said = demo.communicate(timeout=60)

    assert demo.returncode == 0, said
    assert output == ""
    assert "Traceback" not in said
    assert leftovers(system_dir) == []
