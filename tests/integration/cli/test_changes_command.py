"""`freshet changes --host`: by whatever name people write."""

import json

import pytest
from click.testing import CliRunner

from services.cli.main import main
from shared.store.changes import Change, note_change

pytestmark = pytest.mark.postgres

NOTED = ("example.com:8080", "example.com", "2001:db8::1", "Rack/7")


@pytest.fixture
def noted(migrated_url):
    """A function: names as people write them → the names of the changes that are shown."""
    for number, name in enumerate(NOTED):
        note_change(migrated_url, Change(1.7e9 + number, "ada", "host", name, {}))

    def shown(written, code=0):
        command = ["changes", "--host", written, "--json"]
        result = CliRunner().invoke(main, command, env={"DATABASE_URL": migrated_url})
        assert result.exit_code == code, result.output
        return [change["host"] for change in json.loads(result.stdout)] if code == 0 else result

    return shown


def test_a_host_is_found_however_it_is_written(noted):
    assert noted("Example.com") == ["example.com"]
    assert noted("example.com:80") == ["example.com"]
    assert noted("EXAMPLE.com.:8080") == ["example.com:8080"]
    assert noted("other.example") == []
    assert noted("https://example.com") == ["example.com"]
    assert "is not a host" in noted("https://example.com/", code=2).output


@pytest.mark.parametrize("name", ["2001:db8::1", "Rack/7"])
def test_a_group_is_found_by_the_name_that_crawlers_give(noted, name):
    assert noted(name) == [name]


def test_times_are_told_to_people_as_times(migrated_url):
    until = 1.7e9 + 12 * 3600 + 7
    note_change(migrated_url, Change(1.7e9, "ada", "host", "a.example", {"blocked_until": until}))
    note_change(migrated_url, Change(1.7e9, "ada", "budget", None, {"set_at": 1.7e9 + 1}))

    def shown(*more):
        result = CliRunner().invoke(main, ["changes", *more], env={"DATABASE_URL": migrated_url})
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "blocked_until 2023-11-15 10:13:27Z" in shown()
    assert "set_at 2023-11-14 22:13:21Z" in shown()
    assert json.loads(shown("--json", "--host", "a.example"))[0]["change"] == {
        "blocked_until": until
    }
