"""`freshet groups`: what is sent, what stands, and what a host shares."""

import json

import pytest
from click.testing import CliRunner

from services.cli import audit, group_limits
from services.cli.errors import UserError
from services.cli.main import main
from shared.contracts.fields import MOST_GROUPS


@pytest.fixture
def run(monkeypatch):
    """Runs a command over limits that stand: its answer, what is published, and the notes."""

    def invoke(*arguments, standing=None):
        sent, noted = [], []

        async def publish(_settings, group, rate):
            sent.append((group, rate))

        async def limits(_settings):
            return standing or {}

        monkeypatch.setattr(group_limits, "publish_limit", publish)
        monkeypatch.setattr(group_limits, "standing_limits", limits)
        monkeypatch.setattr(audit, "note", lambda _, *noting: noted.append(noting))
        result = CliRunner().invoke(main, ["groups", *arguments, "--json"])
        if result.exit_code:
            raise UserError(result.output)
        return json.loads(result.output), sent, noted

    return invoke


def test_a_domain_gets_a_limit_and_loses_it(run):
    said, sent, noted = run("limit", "Shop.example.co.uk", "120/day")
    rate = 120 / 86_400
    assert said == {"group": "shop.example.co.uk", "max_crawls_per_second": rate}
    assert sent == [("shop.example.co.uk", rate)]
    assert noted == [("host", "shop.example.co.uk", {"group_max_crawls_per_second": rate})]
    said, sent, _ = run("unlimit", "shop.example.co.uk")
    assert (said["max_crawls_per_second"], sent) == (None, [("shop.example.co.uk", None)])


@pytest.mark.parametrize("suffix", ["co.uk", "github.io"])
def test_what_is_nobodys_domain_is_refused_unless_told_otherwise(run, suffix):
    with pytest.raises(UserError, match="public suffix"):
        run("limit", suffix, "1/s")
    assert run("limit", suffix, "1/s", "--anyway")[1] == [(suffix, 1.0)]


def test_there_is_room_for_so_many(run):
    standing = {f"g{number}.example": 1.0 for number in range(MOST_GROUPS)}
    with pytest.raises(UserError, match="take one back"):
        run("limit", "one.more.example", "1/s", standing=standing)
    assert run("limit", "g3.example", "2/s", standing=standing)[1] == [("g3.example", 2.0)]


def test_what_stands_is_listed_and_a_host_says_what_it_shares(run):
    standing = {"shop.example": 2.0}
    assert run("list", standing=standing)[0] == [
        {"group": "shop.example", "max_crawls_per_second": 2.0}
    ]
    said = run("show", "a.shop.example:81", standing=standing)[0]
    assert said == {
        "host": "a.shop.example:81",
        "group": "shop.example",
        "max_crawls_per_second": 2.0,
        "registered_domain": "shop.example",
    }
    assert run("show", "other.example", standing=standing)[0]["group"] is None
