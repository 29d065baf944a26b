"""Outcomes that the estimator applied, in the figures of `freshet calibration`."""

import asyncio
import json

import psycopg
import pytest
from click.testing import CliRunner
from estimator_world import DAY, NOW, SHARDS, URLS, a_day_of_life, crawl, signal, upsert
from prometheus_client import REGISTRY

from services.cli.main import main
from shared.store.predictions import OTHERS, read_predicted


@pytest.fixture
def calibration(settings):
    """A function that runs the command."""
    environment = {
        "DATABASE_URL": settings.database_url.get_secret_value(),
        "FRESHET_PARTITIONS": str(SHARDS),
    }

    async def run(*arguments, code=0):
        command = ("calibration", "--days", "3650", *arguments)
        result = await asyncio.to_thread(CliRunner().invoke, main, command, env=environment)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.output

    return run


async def test_outcomes_end_up_in_the_figures(settings, start, kafka, calibration, tmp_path):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    answer = await calibration("--json", "--hosts", "3")
    crawled = URLS[::2]
    assert answer["crawls"] == 2 * len(crawled)
    assert answer["pages"] == len(crawled)
    assert (answer["share_of_pages"], len(answer["hosts"])) == (1.0, 3)
    assert answer["all"]["found"] == 0.5
    assert sum(row["crawls"] for row in answer["deciles"]) == answer["crawls"]
    sources = {row["source"]: row for row in answer["sources"]}
    assert sources["feed"]["crawls"] == sources["no signal"]["crawls"] == len(crawled)
    assert (sources["feed"]["found"], sources["no signal"]["found"]) == (1.0, 0.0)
    # Half of the time is that of unchanged intervals.
    assert answer["freshness"]["least"] == pytest.approx(0.5)
    assert 0.5 < answer["freshness"]["found"]["value"] < 1.0
    ages = answer["by_age"]
    assert ages["least_gain"] <= ages["gain"]["value"] <= ages["most_gain"]
    picture = tmp_path / "calibration.svg"
    printed = await calibration("--picture", str(picture))
    assert "no signal" in printed
    assert "host-0.example" in printed
    assert "share of crawls that found one" in picture.read_text()


async def test_what_is_predicted_is_in_the_metrics_once_it_is_durable(start, kafka):
    def counted(kind):
        return sum(
            REGISTRY.get_sample_value(
                f"freshet_estimator_{kind}_changes_total", {"decile": str(decile)}
            )
            for decile in range(10)
        )

    handler = await start(kafka)
    predicted, found = counted("predicted"), counted("found")
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    assert counted("found") - found == len(URLS[::2])
    assert counted("predicted") > predicted


async def test_an_outcome_that_comes_again_counts_once(start, kafka, calibration):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    once = await calibration("--json")
    # The whole last batch, by an estimator that has loaded what the first one wrote.
    another = await start(kafka)
    again = [crawl(url, NOW + 2 * DAY, "changed") for url in URLS[::2]]
    await another.handle(kafka.batch(*again))
    twice = await calibration("--json")
    assert twice["crawls"] == once["crawls"]
    assert twice["all"] == once["all"]


async def test_crawls_of_before_the_upgrade_are_left_out(settings, start, kafka, calibration):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    url = settings.database_url.get_secret_value()
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE observations SET staleness = NULL, fresh_days = NULL, sources = NULL "
            "WHERE NOT changed"
        )
    answer = await calibration("--json")
    assert (answer["crawls"], answer["all"]["found"]) == (len(URLS[::2]), 1.0)


async def test_fourth_sources_are_others(start, kafka, calibration):
    handler = await start(kafka)
    page = URLS[0]
    sources = [signal(page, NOW + 1.5 * DAY + n, f"feed-{n}") for n in range(5)]
    await handler.handle(kafka.batch(upsert(page)))
    await handler.handle(kafka.batch(crawl(page, NOW + DAY)))
    await handler.handle(kafka.batch(*sources, crawl(page, NOW + 2 * DAY)))
    answer = await calibration("--json")
    names = {row["source"]: row["crawls"] for row in answer["sources"]}
    assert names == {"feed-0": 1, "feed-1": 1, "feed-2": 1, OTHERS: 1}


async def test_where_nothing_was_predicted_it_says_why(calibration):
    assert "no crawl of the last" in await calibration(code=2)


async def test_a_picture_has_a_kind(calibration, tmp_path):
    refused = await calibration("--picture", str(tmp_path / "calibration.pdf"), code=2)
    assert "svg" in refused


async def test_a_sample_of_pages_is_one_of_whole_pages(settings, start, kafka):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    database = settings.database_url.get_secret_value()
    seen = read_predicted(database, 0.0, len(URLS[::2]))
    assert 0.0 < seen.share < 1.0
    assert 0 < seen.crawls.pages.size < 2 * len(URLS[::2])
    counts = {page: (seen.crawls.pages == page).sum() for page in seen.crawls.pages.tolist()}
    assert set(counts.values()) == {2}
    assert seen.pages >= len(counts)


async def test_a_sample_has_a_page_however_few_there_are(settings, start, kafka):
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    database = settings.database_url.get_secret_value()
    # As if nearly all crawls were too many: the first sample is one of 65,536 parts of the pages.
    seen = read_predicted(database, 0.0, 0)
    assert seen.crawls.pages.size >= 2
    assert 0.0 < seen.share < 1.0
    assert seen.pages >= 1
