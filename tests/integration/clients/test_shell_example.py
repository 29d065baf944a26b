"""The crawler in the shell says no more of a page and of its host than it has found out."""

import asyncio
import hashlib
import json
import os
import shutil

import pytest
from fleet import EXAMPLES
from raw_web import answer, raw_host

KCAT = """#!/bin/sh
case "$*" in *-P*) exec cat >>"$OUTCOMES" ;; *) exec cat "$REQUESTS" ;; esac
"""
"""Reads requests from a file, and writes outcomes to another."""

NEEDS = pytest.mark.skipif(not all(map(shutil.which, ("curl", "jq"))), reason="curl, jq")
BODY = b"a whole page"
ANSWERS = {
    "/whole": answer(200, BODY),
    "/large": answer(200, bytes(99_999), length=20_000_000),
    "/cut": answer(200, BODY, length=99),
    "/gone": answer(404, BODY),
    "/empty": answer(200),
}


async def crawled(host, paths, folder):
    """The outcomes of pages of a host, crawled in this order."""
    kcat = folder / "kcat"
    kcat.write_text(KCAT)
    kcat.chmod(0o755)
    outcomes = folder / "outcomes"
    asked = [
        {"request_id": path, "url": host.url(path), "host": host.name, "deadline_at": 4e9}
        for path in paths
    ]
    (folder / "requests").write_text("".join(json.dumps(one) + "\n" for one in asked))
    process = await asyncio.create_subprocess_exec(
        EXAMPLES / "shell" / "crawler.sh",
        env=os.environ
        | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "REQUESTS": str(folder / "requests"),
            "OUTCOMES": str(outcomes),
        },
        start_new_session=True,
    )
    await process.wait()
    lines = [line.split("\t") for line in outcomes.read_text().splitlines()]
    assert {key for key, _ in lines} == {host.name}
    return {outcome["request_id"]: outcome for outcome in (json.loads(v) for _, v in lines)}


@NEEDS
async def test_a_page_that_was_not_had_whole_has_failed_and_has_no_digest(tmp_path):
    async with raw_host() as host:
        host.answers = ANSWERS
        found = await crawled(host, ["/whole", "/large", "/cut", "/gone", "/empty"], tmp_path)
    digests = {path: outcome.get("digest") for path, outcome in found.items()}
    results = {path: outcome.get("result") for path, outcome in found.items()}
    assert digests == {
        "/whole": hashlib.sha256(BODY).hexdigest(),
        "/empty": hashlib.sha256(b"").hexdigest(),
    } | dict.fromkeys(("/large", "/cut", "/gone"))
    assert results == {"/large": "failed", "/cut": "failed", "/gone": "gone"} | dict.fromkeys(
        ("/whole", "/empty")
    )
    assert [found[path]["http_status"] for path in ("/whole", "/cut", "/gone")] == [200, 200, 404]


@pytest.mark.slow(0.5)
@NEEDS
async def test_what_another_host_answers_is_not_said_of_the_pages_own(tmp_path):
    async with raw_host() as ours, raw_host() as other:
        other.answers = {"/busy": answer(503), "/page": answer(200, BODY)}
        ours.answers = {
            "/busy": answer(503),
            "/here": answer(302, Location="/busy"),
            "/there": answer(307, Location=other.url("/busy")),
            "/nowhere": answer(302, Location="http://127.0.0.1:1/"),
            "/loop": answer(302, Location="/loop"),
            "/page": answer(302, Location=other.url("/page")),
            "/nothing": answer(302, Location=other.url("/nothing")),
        }
        found = await crawled(ours, [*ours.answers], tmp_path)
    assert {path: (one.get("result"), one["http_status"]) for path, one in found.items()} == {
        "/busy": ("failed", 503),
        "/here": ("failed", 503),
        "/there": ("failed", 307),
        "/nowhere": ("failed", 302),
        "/loop": ("failed", 302),
        "/page": (None, 200),
        "/nothing": ("gone", 404),
    }


@NEEDS
async def test_no_status_line_is_anything_but_a_number(tmp_path):
    trace = tmp_path / "obeyed"
    line = f"302+redirects[$(touch${{IFS}}{trace})]"
    async with raw_host() as ours, raw_host() as other:
        other.answers = {"/busy": answer(503)}
        there = answer(302, Location=other.url("/busy"))
        ours.answers = {"/": there.replace(b"302", line.encode(), 1)}
        found = await crawled(ours, ["/"], tmp_path)
    assert not trace.exists(), "the shell ran what a page's server wrote"
    assert [found["/"]["result"], found["/"]["http_status"]] == ["failed", 302]
