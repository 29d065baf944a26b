"""Maximum ages that a file of pages sets, clears or says nothing of: the same by either way."""

import psycopg
import pytest
from estimator_world import NOW, SHARDS, upsert
from page_batches import published_updates

from services.cli.page_files import read_rows
from services.cli.page_updates import publish_rows
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.store.import_rows import gathered
from shared.store.imports import import_pages

BOUND, UNBOUND, REMOVED, NEW = (f"https://host-1.example/{name}" for name in "abcd")


@pytest.fixture
def published(monkeypatch):
    """Page updates that an import has sent."""
    return published_updates(monkeypatch, SHARDS, NOW + 2)


def bounds(settings):
    """Maximum ages in days of the pages, as the database has them."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        found = dict(connection.execute("SELECT page_id, max_age_days FROM pages").fetchall())
    return [found.get(identify(url).page_id) for url in (BOUND, UNBOUND, REMOVED, NEW)]


NONE = float("inf")


@pytest.mark.parametrize("via", ["copy", "kafka"])
@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("", ["", "", "", ""], [3.0, NONE, NONE, NONE]),
        (",max_age_days", [",", ",", ",", ","], [NONE] * 4),
        (",max_age_days", [",5", ",6", ",7", ",8"], [5.0, 6.0, 7.0, 8.0]),
    ],
    ids=["no column", "nothing in it", "other bounds"],
)
async def test_a_bound_is_kept_or_cleared_by_the_file_and_not_by_its_way(
    settings, start, kafka, published, tmp_path, via, column, values, expected
):
    handler = await start(kafka)
    known = [upsert(url, max_age_days=3.0) for url in (BOUND, REMOVED)]
    await handler.handle(kafka.batch(*known, upsert(UNBOUND)))
    await handler.handle(kafka.batch(PageUpdate("remove", REMOVED, updated_at=NOW + 1)))
    assert bounds(settings) == [3.0, NONE, 3.0, None]

    file = tmp_path / "pages.csv"
    rows = [f"{url},2{v}" for url, v in zip((BOUND, UNBOUND, REMOVED, NEW), values, strict=True)]
    file.write_text("\n".join([f"url,importance{column}", *rows, ""]))
    if via == "copy":
        await handler.close()
        url = settings.database_url.get_secret_value()
        report = import_pages(url, SHARDS, gathered(read_rows(file), 100), now=NOW + 2)
        assert (report.added, report.updated) == (1, 3)
    else:
        await publish_rows(settings, read_rows(file), lambda _: None)
        await handler.handle(kafka.batch(*published))
    assert bounds(settings) == expected
