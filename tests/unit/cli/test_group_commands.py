"""`freshet groups`: what is sent, what stands, and what a host shares."""

import json

import pytest
from click.testing import CliRunner

from services.cli import audit, group_limits, growth, kafka
from services.cli.errors import UserError
from services.cli.main import main
from shared.contracts.fields import MOST_GROUPS
from shared.runtime import growing
from shared.store import splitting


@pytest.fixture
def run(monkeypatch):
    """Runs a command over limits that stand: its answer, what is published, and the notes."""

    def invoke(*arguments, standing=None, named=None):
        sent, noted = [], []

        async def publish(_settings, group, rate):
            sent.append((group, rate))

        async def limits(_settings):
            return standing or {}

        async def room(_settings):
            return MOST_GROUPS

        monkeypatch.setattr(group_limits, "publish_limit", publish)
        monkeypatch.setattr(group_limits, "room_for_limits", room)
        monkeypatch.setattr(group_limits, "standing_limits", limits)
        monkeypatch.setattr(group_limits, "named_group", lambda _settings, _host: named)
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
    said, sent, _ = run("unlimit", "shop.example.co.uk", standing={"shop.example.co.uk": rate})
    assert (said["max_crawls_per_second"], sent) == (None, [("shop.example.co.uk", None)])


@pytest.mark.parametrize("suffix", ["co.uk", "github.io"])
def test_what_is_nobodys_domain_is_refused_unless_told_otherwise(run, suffix):
    with pytest.raises(UserError, match="public suffix"):
        run("limit", suffix, "1/s")
    assert run("limit", suffix, "1/s", "--anyway")[1] == [(suffix, 1.0)]


def test_a_domain_with_a_port_is_refused_as_no_host_would_keep_its_limit(run):
    with pytest.raises(UserError, match="a domain has no port"):
        run("limit", "shop.example:8080", "1/s")


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
        "by": "operators",
        "also": None,
        "registered_domain": "shop.example",
        "named_group": None,
    }
    assert run("show", "other.example", standing=standing)[0]["group"] is None


def test_a_host_of_a_domain_and_an_address_shows_which_of_them_binds(run):
    standing = {"shop.example": 2.0, "203.0.113.7": 0.5}
    said = run("show", "a.shop.example", standing=standing, named="203.0.113.7")[0]
    assert (said["group"], said["max_crawls_per_second"]) == ("203.0.113.7", 0.5)
    assert (said["also"], said["named_group"]) == ({"shop.example": 2.0}, "203.0.113.7")
    said = run("show", "a.example", standing=standing, named="203.0.113.8")[0]
    assert (said["group"], said["also"], said["named_group"]) == (None, None, "203.0.113.8")


def test_the_limit_of_all_addresses_is_told_where_none_of_its_own_wins(run, monkeypatch):
    monkeypatch.setenv("FRESHET_GROUP_CRAWLS_PER_SECOND", "1.5")
    standing = {"shop.example": 2.0, "203.0.113.7": 5.0}
    assert run("list", standing=standing)[0][-1] == {"group": None, "max_crawls_per_second": 1.5}
    said = run("show", "a.shop.example", standing=standing, named="203.0.113.8")[0]
    assert (said["group"], said["by"]) == ("203.0.113.8", "default")
    assert (said["max_crawls_per_second"], said["also"]) == (1.5, {"shop.example": 2.0})
    said = run("show", "a.example", standing=standing, named="203.0.113.7")[0]
    assert (said["group"], said["by"], said["also"]) == ("203.0.113.7", "operators", None)
    assert run("show", "a.example", standing=standing)[0]["group"] is None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:DB8:0::7", "2001:db8::7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[::1]", "[::1]"),
    ],
)
def test_an_address_gets_a_limit_as_crawlers_write_it(run, written, name):
    assert run("limit", written, "5/s")[1] == [(name, 5.0)]
    assert run("unlimit", written, standing={name: 5.0})[1] == [(name, None)]


def test_any_name_that_crawlers_give_gets_a_limit_where_one_says_that_it_is_one(run):
    with pytest.raises(UserError, match="--named"):
        run("limit", "cdn-a", "5/s")
    assert run("limit", "CDN-a", "5/s", "--named")[1] == [("CDN-a", 5.0)]
    assert run("unlimit", "CDN-a", "--named", standing={"CDN-a": 5.0})[1] == [("CDN-a", None)]
    for written in ("", "x" * 65, "two words", "ä"):
        with pytest.raises(UserError, match="visible ASCII"):
            run("limit", written, "5/s", "--named")


@pytest.fixture
def grow(monkeypatch):
    """Begins a growth of so many shards to so many over limits that stand: what the command says,
    and whether anything was changed."""

    def invoke(before, number, standing):
        changed = []

        async def limits(_settings):
            return dict.fromkeys(standing, 1.0)

        async def partitions(settings, topics):
            return {topic.name: list(range(before)) for topic in topics}

        async def passes(*_):
            """The topics can get so many partitions."""

        def prepare(*_):
            changed.append(True)
            raise UserError("the rest is others' matter")

        monkeypatch.setattr(group_limits, "standing_limits", limits)
        monkeypatch.setattr(group_limits, "topic_partitions", partitions)
        monkeypatch.setattr(kafka, "require_broker", lambda _: None)
        monkeypatch.setattr(growing, "require_partitions", passes)
        monkeypatch.setattr(splitting, "require_can_grow", lambda *_: {})
        monkeypatch.setattr(splitting, "prepare", prepare)
        monkeypatch.setattr(growth, "require_order", passes)
        result = CliRunner().invoke(main, ["shards", "grow", str(number), "--yes"])
        return result.output, bool(changed)

    return invoke


LIMITED = [f"{number:02}.example" for number in range(79)]


def test_shards_do_not_become_more_than_leave_room_for_the_limits_of_groups(grow):
    said, has_changed = grow(128, 256, LIMITED)
    assert "79 groups have limits, and with 256 shards there is room for 78" in said
    assert "of 78.example for one" in said
    assert not has_changed


@pytest.mark.parametrize(
    ("before", "number", "count"), [(128, 256, 78), (256, 256, 79), (4, 128, 79)]
)
def test_where_there_is_room_or_it_is_too_late_shards_become_more(grow, before, number, count):
    assert grow(before, number, LIMITED[:count])[1]
