"""Commands about all pages of a host, or below a prefix: counted first, and asked about."""

import json

import pytest
from click.testing import CliRunner
from taken_messages import Taken, publish_by

from services.cli import selected_pages
from services.cli.main import main
from shared.contracts.codec import decode
from shared.contracts.identity import shard_of
from shared.contracts.messages import PageUpdate

URLS = [f"https://a.example/shop/{number}" for number in range(25)]
GONE = URLS[20:]
"""Of them, those that are not crawled any more."""


@pytest.fixture
def sent(monkeypatch):
    """Page updates that a command has published; the database has the pages of `URLS`."""
    messages = []

    class Publisher(Taken):
        async def queue_batches(self, batches):
            for place, part in batches.items():
                messages.extend((place, key, decode(PageUpdate, value)) for key, value in part)

    def under(_url, host, prefix, *, only_active):
        there = [url for url in URLS if not (only_active and url in GONE)]
        return [url for url in there if host == "a.example" and url.startswith(prefix)]

    def parts(*arguments, **options):
        found = under(*arguments, **options)
        yield from (found[begin : begin + 10] for begin in range(0, len(found), 10))

    publish_by(monkeypatch, Publisher)
    monkeypatch.setattr(selected_pages, "count_under", lambda *of, **by: len(under(*of, **by)))
    monkeypatch.setattr(selected_pages, "urls_under", parts)
    return messages


def run(*arguments, answer=""):
    return CliRunner().invoke(main, ["pages", *arguments], input=answer, catch_exceptions=False)


def test_a_dry_run_counts_and_says_nothing_to_anybody(sent):
    done = run("remove", "--host", "A.example", "--dry-run", "--json")
    assert json.loads(done.stdout) == {"would_remove": 25}
    done = run("max-age", "--prefix", "https://a.example/shop/1", "--none", "--dry-run", "--json")
    assert json.loads(done.stdout) == {"would_change": 11}
    # Whoever says both wants to be sure that nothing happens.
    run("remove", "--host", "a.example", "--dry-run", "--yes")
    assert sent == []


def test_pages_of_a_host_are_removed_once_that_is_agreed_to(sent):
    refused = run("remove", "--host", "a.example", answer="n\n")
    assert refused.exit_code != 0
    assert "Remove 25 pages?" in refused.output
    assert sent == []
    done = run("remove", "--host", "a.example", answer="y\n")
    assert done.stdout.split()[-2:] == ["for", "25"], "asked for: estimators apply it"
    assert [update.url for _, _, update in sent] == URLS
    for (topic, shard), key, update in sent:
        assert (topic, key, update.op) == ("page-updates", b"a.example", "remove")
        assert shard == shard_of("a.example", 64)
        assert update.updated_at > 1.7e9


def test_a_prefix_is_taken_as_urls_are_named(sent):
    run("remove", "--prefix", "HTTPS://A.example:443/shop/2", "--yes")
    assert [update.url for _, _, update in sent] == [URLS[2], *URLS[20:]]


def test_single_pages_need_no_database_and_no_question(sent):
    assert json.loads(run("remove", URLS[0], "https://b.example", "--json").stdout) == {
        "asked_for": 2
    }
    assert [update.url for _, _, update in sent] == [URLS[0], "https://b.example/"]


def test_a_maximum_age_is_set_and_cleared_and_nothing_else_is(sent):
    run("max-age", URLS[0], "--none")
    run("max-age", "--prefix", URLS[1], "--days", "3", "--yes")
    first, second = sent[0][2], sent[1][2]
    assert (first.no_max_age, first.max_age_days, first.importance) == (True, None, None)
    assert (second.no_max_age, second.max_age_days, second.importance) == (False, 3.0, None)


def test_a_maximum_age_of_a_host_brings_no_page_back_that_is_gone(sent):
    """Whoever says anything of a page asks for it: that is for those who name it."""
    arguments = ("max-age", "--host", "a.example", "--days", "3")
    assert json.loads(run(*arguments, "--dry-run", "--json").stdout) == {"would_change": 20}
    asked = run(*arguments, answer="y\n")
    assert "Change the maximum age of 20 pages that are crawled?" in asked.output
    assert [update.url for _, _, update in sent] == URLS[:20]
    assert not {update.url for _, _, update in sent}.intersection(GONE)
    run("max-age", GONE[0], "--none")
    assert sent[-1][2].url == GONE[0]


@pytest.mark.parametrize("command", ["remove", "purge"])
def test_what_is_no_host_is_refused_and_not_taken_for_another(sent, command):
    done = run(command, "--host", "a.example/shop", "--yes")
    assert done.exit_code != 0
    assert "is not a host" in done.stderr
    assert sent == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("remove", URLS[0], "--host", "a.example"), "give URLs, or --host, or --prefix"),
        (("remove", "--host", "a.example", "--prefix", URLS[0]), "give URLs, or --host, or"),
        (("remove",), "give URLs, or --host, or --prefix"),
        (("max-age", URLS[0], "--days", "3", "--none"), "give --days or --none"),
        (("max-age", URLS[0]), "give --days or --none"),
    ],
)
def test_of_two_things_that_are_said_neither_is_guessed(sent, arguments, reason):
    done = run(*arguments, "--yes")
    assert done.exit_code == 2
    assert reason in done.stderr
    assert sent == []
