"""What the coordinator's page looks up: what the commands say, and nothing that harms its work."""

import asyncio
import contextlib
import json
import uuid
from urllib.parse import quote

import psycopg
import pytest
from click.testing import CliRunner
from pydantic import SecretStr
from views_world import DAY, HOSTILE, SHARDS, SITEMAP, STREAM, URL
from workers import worker

from services.cli.main import main

pytestmark = [pytest.mark.slow(20), pytest.mark.kafka, pytest.mark.postgres]

VIEWS = [f"/page.json?url={quote(URL)}", "/hosts.json", "/sources.json", "/calibration.json"]


async def get(process, path):
    status, body = await process.get(path)
    return status, json.loads(body)


async def said_by(database_url, *command, exit_code=0):
    """What a command answers."""
    environment = {
        "DATABASE_URL": database_url,
        "FRESHET_PARTITIONS": str(SHARDS),
        "SCHEDULER_URLS": "http://127.0.0.1:1",
    }
    result = await asyncio.to_thread(
        CliRunner().invoke, main, [*command, "--json"], env=environment
    )
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


async def test_each_view_says_what_the_command_says(viewed, view_database):
    # Written otherwise than it is kept, as people do.
    status, page = await get(viewed, f"/page.json?url={quote('HTTPS://A.example:443/news#x')}")
    told = await said_by(view_database, "explain", URL)
    assert status == 200
    for part in ("url", "state", "parameters", "host", "crawls", "status"):
        assert page[part] == told[part], part
    assert page["decision"]["threshold"] == told["decision"]["threshold"]
    assert len(page["curve"]["at"]) == len(page["curve"]["value"])
    assert page["curve"]["value"] == sorted(page["curve"]["value"])

    status, hosts = await get(viewed, "/hosts.json")
    assert (status, hosts["is_whole"]) == (200, True)
    assert hosts["hosts"] == await said_by(view_database, "hosts", "list")
    bound = {host["host"]: (host["by"], host["blocked_by"]) for host in hosts["hosts"]}
    assert bound["host-1.example"] == ("operators", None)
    assert bound["host-2.example"] == ("robots.txt", None)
    assert bound["host-3.example"][1] == "operators"
    assert bound["host-4.example"][1] == "the host asked for it"
    open_requests = {host["host"]: host["max_open_requests"] for host in hosts["hosts"]}
    assert (open_requests["host-1.example"], open_requests["host-2.example"]) == (2, None)
    status, one = await get(viewed, "/hosts.json?host=HOST-1.example.")
    # It leaves out what the broker knows, which it has none of.
    told = await said_by(view_database, "hosts", "show", "host-1.example", exit_code=1)
    assert one["hosts"] == [told]
    # A port goes without saying in the view, too.
    assert (await get(viewed, "/hosts.json?host=host-1.example:443"))[1]["hosts"] == [told]

    status, sources = await get(viewed, "/sources.json")
    [sitemap] = sources["sources"]
    told, stream, bots = await said_by(view_database, "sites", "list")
    # By what was announced a day, up to the moment.
    assert sitemap["recall"] == pytest.approx(told["recall"], rel=1e-3)
    assert sitemap | {"recall": None} == told | {"recall": None}
    assert (sitemap["url"], sitemap["cost_crawls_a_day"]) == (SITEMAP, 24.0)
    # Two a day, known after half an hour on average instead of half a day.
    assert sitemap["staleness_saved"] == pytest.approx(2.0 * (1.0 - 1.0 / 24.0) / 2.0)
    assert [view["source"] for view in sources["streams"]] == ["changes", "changes-bots"]
    for view, one in zip(sources["streams"], (stream, bots), strict=True):
        assert view | {"recall": None} == one | {"recall": None}
    assert (stream["url"], stream["polls"], stream["cost_crawls_a_day"]) == (STREAM, 96, 48.0)
    assert (stream["entries"], stream["bad_entries"], told["bad_entries"]) == (5000, 12, None)
    assert (stream["failures"], stream["gaps"], stream["bytes_a_day"]) == (3, 1, 5e8)
    assert 0.0 < stream["precision"] <= 1.0
    assert 0.0 < stream["recall"] <= 1.0
    # Two a day, known after ten seconds instead of half a day.
    assert stream["staleness_saved"] == pytest.approx(2.0 * (0.5 - 10.0 / DAY))
    assert (bots["signals"], bots["polls"], bots["precision"]) == (7, 0, None)
    site, changes = sorted(sources["senders"], key=lambda sender: sender["is_stream"])
    assert (site["source"], site["is_stream"]) == ("site:a.example/sitemap.xml", False)
    assert (changes["source"], changes["is_stream"]) == ("changes", True)
    assert (site["delay_seconds"], changes["delay_seconds"]) == (10.0, 40.0)
    # Of the hosts that each says most of, whoever it is; of one that is watched that is not all.
    assert 0.0 < site["recall"] < sitemap["recall"]
    assert changes["recall"] == pytest.approx(stream["recall"], rel=1e-3)

    status, calibration = await get(viewed, "/calibration.json?days=30")
    told = await said_by(view_database, "calibration", "--days", "30")
    assert status == 200
    assert calibration["crawls"] == told["crawls"] > 0
    for part in ("all", "deciles", "hosts", "sources"):
        assert calibration[part] == told[part], part


async def test_what_cannot_be_answered_says_why(viewed):
    for path, wanted, words in (
        ("/page.json?url=nothing", 400, "not an absolute URL"),
        ("/page.json", 400, "URL"),
        ("/page.json?url=ftp%3A%2F%2Fa.example%2F", 400, "only http"),
        ("/page.json?url=https%3A%2F%2Fa.example%2Fnone", 404, "freshet pages import"),
        ("/page.json?url=" + "a" * 7000, 400, "characters"),
        ("/page.json?url=a%00b", 400, "unprintable"),
        ("/hosts.json?host=a%2Fb", 400, "is not a host"),
        ("/hosts.json?host=" + quote(HOSTILE), 400, "is not a host"),
        ("/hosts.json?host=none.example", 404, "is not known"),
        ("/calibration.json?days=nan", 400, "days"),
        ("/calibration.json?days=-1", 400, "days"),
        ("/calibration.json?days=1e999", 400, "days"),
    ):
        status, answer = await get(viewed, path)
        assert (status, list(answer)) == (wanted, ["error"]), path
        assert words in answer["error"], answer


async def test_a_database_that_hangs_keeps_nobody_but_who_looks(viewed, view_database):
    assert (await get(viewed, "/hosts.json"))[0] == 200
    with psycopg.connect(view_database) as blocker:
        blocker.execute("LOCK TABLE hosts")
        looking = [asyncio.ensure_future(get(viewed, "/hosts.json")) for _ in range(10)]
        version = (await get(viewed, "/state.json"))[1]["now"]["at"]
        # Those who come while enough wait are told so, and the picture goes on.
        done, _ = await asyncio.wait(looking, return_when=asyncio.FIRST_COMPLETED)
        assert all("ask again" in task.result()[1]["error"] for task in done)
        async with asyncio.timeout(20):
            while (await get(viewed, "/state.json"))[1]["now"]["at"] <= version:
                await asyncio.sleep(0.05)
        assert (await viewed.get("/readyz"))[0] == 200
        answers = await asyncio.gather(*looking)
    assert {status for status, _ in answers} == {503}
    assert any("takes too long" in answer["error"] for _, answer in answers)
    assert (await get(viewed, "/hosts.json"))[0] == 200


@pytest.mark.long
async def test_pages_are_read_by_the_user_who_may_read_them(view_settings, view_database, tmp_path):
    for role, wanted in (("freshet_coordinator", {503}), ("freshet_readonly", {200})):
        with a_login(view_database, role) as address:
            more = {"instance": "another", "view_database_url": SecretStr(address)}
            settings = view_settings.model_copy(update=more)
            with worker("coordinator", settings, tmp_path) as process:
                await process.ready()
                answers = [await get(process, path) for path in VIEWS]
        assert {status for status, _ in answers} == wanted, answers
        if wanted == {503}:
            assert all("FRESHET_VIEW_DATABASE_URL" in answer["error"] for _, answer in answers)


@contextlib.contextmanager
def a_login(database_url, role):
    """The address of the database as a user who has that role alone."""
    user = f"viewer_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE {role}")
        yield database_url.replace("postgres@", f"{user}@", 1)
        connection.execute(f"DROP ROLE {user}")


async def test_where_the_database_is_away_the_rest_goes_on(view_settings, tmp_path):
    away = {
        "instance": "another",
        "view_database_url": SecretStr("postgresql://nobody:secret@127.0.0.1:1/none"),
    }
    with worker("coordinator", view_settings.model_copy(update=away), tmp_path) as process:
        await process.ready()
        for path in VIEWS:
            status, answer = await get(process, path)
            assert (status, answer) == (
                503,
                {"error": "the database does not answer; the log says why"},
            )
        assert (await process.get("/state.json"))[0] == (await process.get("/readyz"))[0] == 200
        assert "a view has no answer" in process.log
        assert "secret" not in process.log
