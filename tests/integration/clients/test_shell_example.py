"""The crawler in the shell says of a page that it could not have whole that it failed."""

import asyncio
import hashlib
import json
import os
import shutil
from contextlib import asynccontextmanager

import pytest
from fleet import EXAMPLES

KCAT = """#!/bin/sh
case "$*" in *-P*) exec cat >>"$OUTCOMES" ;; *) exec cat "$REQUESTS" ;; esac
"""
"""Reads requests from a file, and writes outcomes to another."""

BODY = b"a whole page"
ANSWERS = {
    "/whole": b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + BODY,
    "/large": b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + bytes(99_999),
    "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + BODY,
    "/gone": b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\n" + BODY,
    "/empty": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


async def reply(reader, writer):
    path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
    writer.write(ANSWERS[path])
    writer.close()


@asynccontextmanager
async def server():
    listening = await asyncio.start_server(reply, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def crawled(paths, folder):
    """The outcomes of pages, crawled in this order."""
    kcat = folder / "kcat"
    kcat.write_text(KCAT)
    kcat.chmod(0o755)
    outcomes = folder / "outcomes"
    async with server() as host:
        asked = [
            {"request_id": path, "url": f"http://{host}{path}", "host": host, "deadline_at": 4e9}
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
    assert {key for key, _ in lines} == {host}
    return {outcome["request_id"]: outcome for outcome in (json.loads(v) for _, v in lines)}


@pytest.mark.skipif(not all(map(shutil.which, ("curl", "jq"))), reason="curl, jq")
async def test_a_page_that_was_not_had_whole_has_failed_and_has_no_digest(tmp_path):
    found = await crawled(["/whole", "/large", "/cut", "/gone", "/empty"], tmp_path)
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
