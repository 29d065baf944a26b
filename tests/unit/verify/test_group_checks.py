"""The check of groups' limits finds a crawl too many, over all shards."""

from made_ledgers import asked, ledger

from services.verify.checks import limits

LIMIT = {"shop.example": 1.0}


def crawls(times, host="a.shop.example", partition=0):
    return [asked(at, url=f"http://{host}/", partition=partition) for at in times]


def test_two_shards_that_each_take_the_whole_limit_are_found():
    seconds = [float(n) for n in range(50, 80)]
    one = crawls(seconds)
    other = crawls([at + 0.5 for at in seconds], "b.shop.example:81", 1)
    elsewhere = crawls([at + 0.25 for at in seconds], "bookshop.example", 1)
    for judge in (
        lambda found: limits.groups(found, LIMIT),
        lambda found: limits.groups_by_arrival(found, LIMIT, ()),
    ):
        assert judge(ledger(requests=one + elsewhere)).passed
        assert judge(ledger(requests=one[::2] + other[1::2] + elsewhere)).passed
        assert judge(ledger(requests=one + other)).count == 1


def test_a_slot_that_each_shard_has_kept_may_come_with_the_others():
    quiet = crawls([50.0])
    together = [60.0, 60.1, 60.2, 61.0]
    assert limits.groups(ledger(requests=quiet + crawls(together[:2])), LIMIT).passed
    assert not limits.groups(ledger(requests=quiet + crawls(together)), LIMIT).passed
    spread = [*crawls(together[:2]), *crawls(together[2:], partition=1)]
    assert limits.groups(ledger(requests=quiet + spread), LIMIT).passed


def test_hosts_of_one_address_count_together_from_when_that_is_known():
    limit = {"203.0.113.7": 1.0}
    seconds = [float(n) for n in range(50, 80)]
    requests = crawls(seconds, "a.example") + crawls([at + 0.5 for at in seconds], "b.example")
    named = dict.fromkeys(("a.example", "b.example"), ("203.0.113.7", 40.0))
    assert limits.groups(ledger(requests=requests), limit, named).count == 1
    assert limits.groups_by_arrival(ledger(requests=requests), limit, (), named).count == 1
    late = named | {"b.example": ("203.0.113.7", 90.0)}
    assert limits.groups(ledger(requests=requests), limit, late).passed
    other = named | {"b.example": ("203.0.113.8", 40.0)}
    assert limits.groups(ledger(requests=requests), limit, other).passed


def test_of_nested_domains_the_innermost_ones_limit_holds():
    seconds = [float(n) for n in range(50, 80)]
    inner, outer = crawls(seconds), crawls([at + 0.5 for at in seconds], "b.example")
    nested = {"example": 1.0, "shop.example": 1.0}
    assert limits.groups(ledger(requests=inner + outer), nested).passed
    assert limits.groups(ledger(requests=inner + outer), {"example": 1.0}).count == 1
