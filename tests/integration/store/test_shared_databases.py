"""An installation in two databases, as commands see it: each page is in one of them, and found."""

import json
import uuid

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from page_batches import page_batch

from migrations.upgrade import migrate
from services.cli.doctor.database import look_at_databases
from services.cli.main import main
from services.cli.shards import shards_now
from services.coordinator.views.answering import hosts_view
from shared.contracts.databases import Databases
from shared.contracts.identity import identify
from shared.contracts.layout import Layout
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.deployment import StoreMismatch, check_deployment
from shared.store.growth import GrowthRefused
from shared.store.imports import import_pages, import_shared
from shared.store.known_pages import known_pages
from shared.store.layout import fetch_layout
from shared.store.page_listing import (
    Wanted,
    count_by_state,
    count_pages,
    list_host_names,
    list_pages,
)
from shared.store.purging import Purgeable, count_purgeable, purgeable_urls
from shared.store.questions import SharedQuestions
from shared.store.splitting import finish, prepare, split_all
from shared.store.stream_topics import StoredTopics
from shared.store.what_is_known import WhatIsKnown

SHARDS = 4
NOW = 1.7e9
HOSTS = [f"host-{number}.example" for number in range(20)]
URLS = [f"https://{host}/{number}" for host in HOSTS for number in range(3)]


@pytest.fixture
def databases(postgres_server):
    """Two empty ones; that they are on one server nobody knows."""
    names = [f"test_{uuid.uuid4().hex}" for _ in range(2)]
    home, other = (postgres_server.create_database(name) for name in names)
    yield Databases.parse(f"0-1={home},2-3={other}")
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def migrated(databases):
    for one in databases.each:
        migrate(one.url, SHARDS, one.held)
    return databases


@pytest.fixture
def filled(migrated):
    report = import_shared(migrated, SHARDS, [page_batch(URLS)], now=NOW)
    assert (report.read, report.added, report.refused) == (len(URLS), len(URLS), 0)
    return migrated


@pytest.fixture
def environment(databases, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    text = ",".join(f"{one.held.partition('/')[0]}={one.url}" for one in databases.each)
    monkeypatch.setenv("FRESHET_DATABASES", text)
    monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def pages_in(database):
    """URL → shard."""
    with psycopg.connect(database.url) as connection:
        return dict(connection.execute("SELECT url, shard FROM page_urls").fetchall())


def assert_each_is_where_it_belongs(databases, layout):
    where = [pages_in(one) for one in databases.each]
    assert sorted(url for one in where for url in one) == sorted(URLS)
    for database, pages in zip(databases.each, where, strict=True):
        assert pages
        for url, shard in pages.items():
            assert layout.shard_of(identify(url).host) == shard
            assert databases.of(shard) == database


def test_commands_see_both_databases_as_one(databases, environment, tmp_path):
    assert run("migrate", "--json") == {
        "databases": [one.url for one in databases.each],
        "shards": SHARDS,
    }
    rows = "".join(f"{url},1.0\n" for url in URLS)
    (tmp_path / "pages.csv").write_text(f"url,importance\n{rows}")
    answer = run("pages", "import", "pages.csv", "--json")
    assert (answer["added"], answer["updated"]) == (len(URLS), 0)
    assert run("pages", "import", "pages.csv", "--json")["updated"] == len(URLS)
    assert_each_is_where_it_belongs(databases, Layout.of(SHARDS))

    store = run("status", "--json")["store"]
    counts = [len(pages_in(one)) for one in databases.each]
    assert (store["shards"], store["pages"]["active"]) == (SHARDS, len(URLS))
    assert store["hosts"]["known"] == len(HOSTS)
    assert [(one["shards"], one["active"], one["away"]) for one in store["databases"]] == [
        ("0-1/4", counts[0], None),
        ("2-3/4", counts[1], None),
    ]
    for url in URLS[::3]:
        assert run("explain", url, "--json")["url"] == url
        # There is no broker, which knows the limits of groups.
        host = run("hosts", "show", identify(url).host, "--json", exit_code=1)
        assert host["host"] == identify(url).host
    shown = run("shards", "show", "--json")
    assert sum(one["pages"] for one in shown["states"]) == len(URLS)


AWAY = "postgresql://u:hidden@127.0.0.1:1/none"


@pytest.mark.parametrize("away", [0, 1], ids=["the home", "the other"])
def test_what_can_be_shown_is_while_a_database_is_away(filled, environment, monkeypatch, away):
    there = filled.each[1 - away]
    urls = [AWAY if number == away else one.url for number, one in enumerate(filled.each)]
    monkeypatch.setenv("FRESHET_DATABASES", f"0-1={urls[0]},2-3={urls[1]}")
    with psycopg.connect(there.url) as connection:
        connection.execute("UPDATE hosts SET max_crawls_per_second = 0.5")

    store = run("status", "--json", exit_code=1)["store"]
    assert store["pages"]["active"] == len(pages_in(there))
    assert [one["away"] is None for one in store["databases"]] == [away == 1, away == 0]
    shards = run("shards", "show", "--json", exit_code=1)
    assert (shards["shards"], shards["is_growing"]) == (SHARDS, False)
    assert [one["shard"] for one in shards["states"]] == filled.had_by(there, range(SHARDS))
    assert sum(one["pages"] for one in shards["states"]) == len(pages_in(there))
    hosts = run("hosts", "list", "--json", exit_code=1)
    assert {host["host"] for host in hosts} == {identify(url).host for url in pages_in(there)}

    held = filled.each[away].held
    view = hosts_view(load_settings(), "")
    assert (view["hosts"], view["shards_away"]) == (hosts, [held])
    for command in (["status"], ["shards", "show"], ["hosts", "list"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1
        assert result.stdout
        [said] = result.stderr.splitlines()
        address = "their database at postgresql://u@127.0.0.1:1/none is away: connection failed"
        assert said.startswith(f"Error: shards {held} are left out: {address}")
        assert "hidden" not in result.output


@pytest.mark.parametrize(
    "command", [["status"], ["shards", "show"], ["hosts", "list"]], ids=" ".join
)
def test_nothing_is_shown_while_all_databases_are_away(environment, monkeypatch, command):
    monkeypatch.setenv("FRESHET_DATABASES", f"0-1={AWAY},2-3={AWAY}2")
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be reached at postgresql://u@127.0.0.1:1/none" in result.stderr
    assert "hidden" not in result.stderr


def test_a_growth_is_shown_while_a_database_is_away(filled, environment, monkeypatch):
    monkeypatch.setenv("FRESHET_DATABASES", f"0-1={filled.home.url},2-3={AWAY}")
    layout = prepare(filled, 2 * SHARDS)
    assert run("shards", "show", "--json", exit_code=1)["is_growing"]
    split_all(filled, layout, lambda *_: None, wait_seconds=0.0, unattended=True)
    shown = run("shards", "show", "--json", exit_code=1)
    assert (shown["shards"], shown["is_growing"]) == (2 * SHARDS, False)
    assert [(one["shard"], one["state"]) for one in shown["states"]] == [
        (shard, "split") for shard in (0, 1, 4, 5)
    ]


def test_a_page_is_explained_though_the_home_is_away_if_it_is_in_another(
    filled, environment, monkeypatch
):
    _, other = filled.each
    text = f"0-1=postgresql://u:hidden@127.0.0.1:1/none,2-3={other.url}"
    monkeypatch.setenv("FRESHET_DATABASES", text)
    [url, *_] = pages_in(other)
    answer = run("explain", url, "--json")
    assert (answer["url"], answer["decision"]["multiplier"]) == (url, None)
    elsewhere = next(u for u in URLS if filled.of_host(identify(u).host) == filled.home)
    assert CliRunner().invoke(main, ["explain", elsewhere]).exit_code == 2


def test_what_is_listed_is_of_both_a_page_at_a_time(filled):
    assert count_by_state(filled, None)["active"] == len(URLS)
    assert count_by_state(filled, HOSTS[0])["active"] == 3
    assert count_pages(filled, Wanted()) == len(URLS)
    for size in (7, 60):
        parts = [list_pages(filled, Wanted(), start, size) for start in range(0, 70, size)]
        assert sorted(row["url"] for part in parts for row in part) == sorted(URLS)
        hosts = [
            list_host_names(filled, NOW, blocked_too=True, start=start, most=size)
            for start in range(0, 70, size)
        ]
        assert sorted(host for names, _ in hosts for host in names) == sorted(HOSTS)
        assert {total for _, total in hosts} == {len(HOSTS)}


def test_pages_that_may_go_are_found_in_both(filled):
    wanted = Purgeable(any_status=True)
    assert sum(count_purgeable(filled, wanted)) == len(URLS)
    assert sorted(u for part in purgeable_urls(filled, wanted) for u in part) == sorted(URLS)
    of_host = Purgeable(host=HOSTS[0], any_status=True)
    assert {u for part in purgeable_urls(filled, of_host) for u in part} == set(URLS[:3])


async def test_links_are_judged_by_the_database_of_their_host(filled):
    questions = SharedQuestions(filled, "test")
    known = WhatIsKnown(questions)
    pages = [identify(url) for url in URLS]
    new = [identify(f"https://{host}/new-{n}") for host in HOSTS for n in range(2)]
    try:
        assert await known.pages(pages + new) == {page.page_id for page in pages}
        assert await known.hosts({*HOSTS, "strange.example"}, 0.0) == set(HOSTS)
        became = await known.let_in(new, 4, 0.0)
    finally:
        questions.stop()
    # Each host has three pages: one more is within its quota.
    assert sorted(became.values()) == ["new"] * len(HOSTS) + ["quota"] * len(HOSTS)


def test_a_database_is_for_its_shards_alone(filled):
    home, other = filled.each
    for url, held in ((home.url, None), (home.url, other.held), (other.url, home.held)):
        with (
            connect(url, "test") as connection,
            pytest.raises(StoreMismatch, match="do not move from one database to another"),
        ):
            check_deployment(connection, SHARDS, held)
        with pytest.raises(StoreMismatch):
            migrate(url, SHARDS, held)
    with pytest.raises(StoreMismatch):
        import_pages(home.url, SHARDS, [], now=NOW)


def test_the_doctor_looks_at_each_and_says_which(filled):
    def risks(databases):
        found = [one for one in look_at_databases(databases, SHARDS) if one.level == "risk"]
        # The server of the tests does not wait for its disk.
        return {one.about: one.found for one in found if not one.about.startswith("fsync (")}

    assert risks(filled) == {}
    grown(filled, 2 * SHARDS)
    assert risks(filled) == {}
    home, other = filled.each
    swapped = Databases.parse(f"0-1={other.url},2-3={home.url}")
    assert risks(swapped).keys() == {"shards held (0-1/4)", "shards held (2-3/4)"}
    away = Databases.parse(f"0-1={home.url},2-3=postgresql://u@127.0.0.1:1/none")
    assert risks(away).keys() == {"server (2-3/4)"}


def test_an_empty_database_may_be_given_other_shards(databases):
    home, _ = databases.each
    migrate(home.url, SHARDS)
    migrate(home.url, SHARDS, home.held)
    with connect(home.url, "test") as connection:
        check_deployment(connection, SHARDS, home.held)


def quiet(*_):
    """Nobody looks."""


def grown(databases, shards):
    layout = prepare(databases, shards)
    split_all(databases, layout, quiet, wait_seconds=0.0, unattended=True)
    finish(databases, layout, quiet)
    return layout


def test_shards_grow_each_in_its_database_and_may_grow_again(filled):
    first = grown(filled, 2 * SHARDS)
    assert_each_is_where_it_belongs(filled, Layout(8, 4, frozenset(range(4))))
    assert not any(fetch_layout(one.url).is_growing for one in filled.each)
    assert (first.shards, first.grown_from) == (8, 4)

    grown(filled, 6 * SHARDS)
    whole = Layout(24, 8, frozenset(range(8)))
    assert_each_is_where_it_belongs(filled, whole)
    shards, away = shards_now(filled)
    assert (shards["is_growing"], away) == (False, {})
    assert sum(one["pages"] for one in shards["states"]) == len(URLS)
    # What goes by the layout of one database finds its own.
    for one in filled.each:
        with connect(one.url, "test", autocommit=True) as connection:
            pages = [identify(url) for url in pages_in(one)]
            assert known_pages(connection, pages) == {page.page_id for page in pages}
    assert sum(count_purgeable(filled, Purgeable(any_status=True))) == len(URLS)
    again = import_shared(filled, SHARDS, [page_batch(URLS)], now=NOW + 1)
    assert (again.added, again.updated) == (0, len(URLS))


def test_a_growth_that_was_cut_off_between_the_databases_goes_on(filled):
    home, other = filled.each
    layout = prepare(Databases.alone(home.url), 8)
    assert (fetch_layout(other.url).shards, layout.shards) == (4, 8)

    with pytest.raises(GrowthRefused):
        prepare(filled, 12)
    grown(filled, 8)
    assert_each_is_where_it_belongs(filled, Layout(8, 4, frozenset(range(4))))


def test_the_home_hears_of_each_split_of_another(filled):
    """It says how far a growth is: else nothing would seem to go on while others are split."""
    layout = prepare(filled, 2 * SHARDS)
    home, seen = filled.home.url, []

    def look(done, _total, what):
        if "tidying up" in what:
            seen.append((done, fetch_layout(home).to_split))

    split_all(filled, layout, look, wait_seconds=0.0, unattended=True)
    # That of this very moment is noted next.
    assert seen == [(1, 3), (2, 2), (3, 2), (4, 1)]
    assert [fetch_layout(one.url).to_split for one in filled.each] == [0, 0]


def test_the_home_hears_of_what_was_split_before_a_command_was_cut_off(filled):
    layout = prepare(filled, 2 * SHARDS)

    def cut(done, _total, what):
        if "tidying up" in what and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split_all(filled, layout, cut, wait_seconds=0.0, unattended=True)
    home, seen = filled.home.url, []
    layout = prepare(filled, 2 * SHARDS)

    def look(_done, _total, what):
        if "shard 3 is copied" in what:
            seen.append(fetch_layout(home).to_split)

    split_all(filled, layout, look, wait_seconds=0.0, unattended=True)
    assert seen == [1]


def test_nothing_grows_where_one_database_is_away(filled):
    home, _ = filled.each
    away = Databases.parse(f"0-1={home.url},2-3=postgresql://u@127.0.0.1:1/none")
    with pytest.raises(psycopg.OperationalError):
        prepare(away, 8)
    assert fetch_layout(home.url) == Layout.of(SHARDS)


def test_imported_bounds_reach_the_right_pages(filled):
    ages = np.arange(1.0, len(URLS) + 1.0)
    import_shared(filled, SHARDS, [page_batch(URLS, max_age_days=ages)], now=NOW + 1)
    found = {}
    for one in filled.each:
        with psycopg.connect(one.url) as connection:
            query = "SELECT url, max_age_days FROM pages JOIN page_urls USING (shard, page_id)"
            found |= dict(connection.execute(query).fetchall())
    assert found == dict(zip(URLS, ages, strict=True))


@pytest.mark.parametrize("writes", [True, False])
async def test_who_starts_while_a_database_is_restored_knows_the_topics_of_the_others(
    databases, writes
):
    other, ids = databases.each[1], {"page-updates": "an id"}
    # None has tables: no waiting helps.
    with pytest.raises(psycopg.errors.UndefinedTable):
        await StoredTopics(databases, "test", writes=writes).note(ids)
    migrate(other.url, SHARDS, other.held)
    known = await StoredTopics(databases, "test", writes=writes).note(ids)
    assert known == (ids if writes else {})
