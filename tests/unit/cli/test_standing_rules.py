"""What stands: of hosts what topic and database say of them, together; one budget; of a group the
last limit."""

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition

from services.cli import kafka, standing
from services.cli.standing import Applied, Stands, all_standing
from shared.contracts.codec import encode
from shared.contracts.messages import Bandwidth, GroupLimit, HostLimit
from shared.contracts.topics import BANDWIDTH, GROUP_LIMITS, HOST_LIMITS
from shared.rules.host_rules import HostRules
from shared.runtime.settings import Settings

PLACE = TopicPartition(HOST_LIMITS.name, 0)
THIS = "the topic that there is"
LIMIT, BLOCK, OPEN = (
    HostLimit("a.example", only="limit", max_crawls_per_second=2.0),
    HostLimit("b.example", only="block", blocked_until=2e9),
    HostLimit("b.example", only="open", max_open_requests=3),
)


def said(message, partition=0, time=0, key=None):
    """A record of a topic."""
    value = encode(message)
    key = message.host.encode() if key is None else key
    return SimpleNamespace(key=key, value=value, partition=partition, timestamp=time)


def erased(host):
    """The tombstone of a host."""
    return SimpleNamespace(key=host.encode(), value=None, partition=0, timestamp=0)


class Log:
    """A consumer of some records, the first of them at an offset."""

    def __init__(self, first, *records):
        self.first, self.records, self.at = first, records, None

    async def start(self):
        pass

    stop = start

    def assign(self, partitions):
        assert partitions == [PLACE]

    async def beginning_offsets(self, _):
        return {PLACE: self.first}

    async def end_offsets(self, _):
        return {PLACE: self.first + len(self.records)}

    def seek(self, place, offset):
        assert place == PLACE
        self.at = offset

    def left(self):
        return self.records[self.at - self.first :]


@pytest.fixture
def stands(monkeypatch):
    """What stands, where the database has some rules and has applied the log up to an offset: as it
    says, of the topic with an id."""

    async def invoke(log, applied, *rules, topic_id=THIS):
        async def there(*_):
            return {HOST_LIMITS.name: [PLACE]}

        async def is_there(*_):
            pass

        async def ids(_client, names):
            return dict.fromkeys(names, THIS)

        async def read(_consumer, ends):
            if ends:
                yield log.left()

        stored = [((rule.host, str(rule.only)), Stands(encode(rule), 1.7e9)) for rule in rules]
        monkeypatch.setattr(standing, "require_topic", is_there)
        monkeypatch.setattr(standing, "require_broker", lambda _: None)
        monkeypatch.setattr(standing, "topic_partitions", there)
        monkeypatch.setattr(standing, "make_consumer", lambda _: log)
        monkeypatch.setattr(standing, "read_up_to", read)
        monkeypatch.setattr(standing, "client_of", lambda _: None)
        monkeypatch.setattr(standing, "topic_ids", ids)
        monkeypatch.setattr(standing, "_applied", lambda *_: {0: Applied(applied, topic_id)})
        monkeypatch.setattr(standing, "_of_databases", lambda _: iter(stored))
        found = await all_standing(Settings(), HOST_LIMITS)
        return {rule: one.value for rule, one in found.items()}

    return invoke


def by_rule(*rules):
    return {(rule.host, rule.only): encode(rule) for rule in rules}


async def test_what_no_estimator_has_applied_yet_goes_before_what_the_database_has(stands):
    faster = HostLimit("a.example", only="limit", max_crawls_per_second=9.0)
    log = Log(10, said(LIMIT), said(faster))
    assert await stands(log, 11, LIMIT, OPEN) == by_rule(faster, OPEN)
    assert await stands(log, 12, LIMIT, OPEN) == by_rule(LIMIT, OPEN)


async def test_a_host_that_was_just_erased_has_no_rule_any_more(stands):
    log = Log(10, erased("b.example"))
    assert await stands(log, 10, LIMIT, BLOCK, OPEN) == by_rule(LIMIT)


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(stands):
    """How far it was read is said of the one before."""
    for applied in (1, 2, 1000):
        log = Log(0, said(BLOCK), said(OPEN))
        assert await stands(log, applied, LIMIT, topic_id="another") == by_rule(LIMIT, BLOCK, OPEN)
    assert await stands(log, 1000, LIMIT) == by_rule(LIMIT, BLOCK, OPEN), "it ends too soon"


async def test_where_nobody_knows_which_topic_was_read_all_of_it_is(stands):
    log = Log(0, said(BLOCK), said(OPEN))
    assert await stands(log, 2, LIMIT, topic_id=None) == by_rule(LIMIT, BLOCK, OPEN)


async def test_a_host_is_called_as_pages_have_it_whoever_says_it(stands):
    elsewhere = HostLimit("http://a.example:443", only="limit", max_crawls_per_second=9.0)
    capitals = HostLimit("A.example:443", only="limit", max_crawls_per_second=3.0)
    log = Log(0, said(elsewhere, key=b"a.example:443"), said(capitals, key=b"a.example"))
    found = await stands(log, 0, LIMIT)
    assert found == {
        ("a.example:443", "limit"): encode(elsewhere),
        ("a.example", "limit"): encode(capitals),
    }
    assert await stands(Log(0, said(HostLimit("no host"))), 0) == {}, "estimators refuse it"


def test_what_takes_back_all_of_a_host_takes_back_each_of_it():
    both = encode(HostLimit("a.example:443"))
    assert standing.name_of(HOST_LIMITS, both) == "a.example:443"
    for rule, part in standing.parts_of(HOST_LIMITS, both):
        assert standing.name_of(HOST_LIMITS, part) == "a.example:443", rule


def test_a_rule_of_the_database_is_said_so_that_it_is_taken_for_that_host():
    [limit, *_] = standing._messages("a.example:443", HostRules(limit=2.0))
    assert limit.host == "http://a.example:443"


async def test_one_budget_stands_the_last_that_is_taken_whatever_its_key(monkeypatch):
    def record(key, value):
        return SimpleNamespace(key=key, value=value)

    records = [
        record(b"z", encode(Bandwidth(100.0))),
        record(b"-", b'{"crawls_per_second":7.0,"later":1}'),
        record(b"a", encode(Bandwidth(500.0, timezone="Nowhere/Nothing"))),
        record(b"global", None),
    ]

    async def last(_settings, topic, _count):
        assert topic is BANDWIDTH
        return records

    async def is_there(*_):
        pass

    monkeypatch.setattr(kafka, "last_records", last)
    monkeypatch.setattr(standing, "require_topic", is_there)
    as_written = {("global", ""): Stands(b'{"crawls_per_second":7.0,"later":1}')}
    assert await all_standing(Settings(), BANDWIDTH) == as_written
    records[:2] = []
    assert await all_standing(Settings(), BANDWIDTH) == {}


def test_of_a_group_the_last_limit_stands_whatever_its_key():
    """By the message coordinators know which group it is about."""
    found = {}
    for key, rate in ((b"z", 1.0), (b"a", 2.0)):
        standing._take(found, GROUP_LIMITS, said(GroupLimit("a.example", rate), key=key))
    assert found == {("a.example", ""): {0: (0, encode(GroupLimit("a.example", 2.0)))}}


async def test_of_a_host_that_went_to_another_shard_the_later_word_stands(stands):
    faster = HostLimit("a.example", only="limit", max_crawls_per_second=9.0)
    for order in (1, -1):
        records = (said(LIMIT, partition=0, time=10), said(faster, partition=4, time=20))
        assert await stands(Log(0, *records[::order]), 0) == by_rule(faster)


def test_the_database_has_a_message_for_each_rule_of_a_host():
    rules = HostRules(limit=2.0, blocked_until=2e9, crawl_delay=4.0, most_open=3)
    assert standing._messages("a.example", rules) == (
        LIMIT,
        HostLimit("a.example", only="block", blocked_until=2e9),
        HostLimit("a.example", only="crawl-delay", crawl_delay_seconds=4.0),
        HostLimit("a.example", only="open", max_open_requests=3),
    )
    unset = [HostLimit("a.example", only=message.only) for message in standing._messages("", rules)]
    assert list(standing._messages("a.example", HostRules())) == unset
