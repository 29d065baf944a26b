"""A host is of the group that crawl outcomes name, and goes over to another one rarely."""

import msgspec
import numpy as np
import pytest
from aiokafka import ConsumerRecord

from services.estimator.application import apply_records
from services.estimator.learning import learn, material_news
from services.estimator.shard import Shard
from services.scheduler.flow.reader import Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, HostParameters, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_PARAMETERS, PAGE_UPDATES
from shared.rules.host_groups import STAYS_SECONDS
from shared.runtime.acceptance import Acceptance
from shared.store.page_status import NEVER

START = 1.7e9
URL = "https://a.example/x"
HOST = identify(URL).host
ACCEPTED = Acceptance(START + 40 * STAYS_SECONDS, START + 40 * STAYS_SECONDS, True)
ONE, OTHER = "203.0.113.7", "2001:db8::7"


def record(topic, message, offset=0):
    key = HOST.encode()
    return ConsumerRecord(
        topic.name, 0, offset, int(START * 1000), 0, key, encode(message), None, -1, -1, ()
    )


class Estimator:
    """An estimator's shard with a page; what it announces, and of what group its host is."""

    def __init__(self):
        self.shard = Shard(0)
        update = PageUpdate("upsert", URL, updated_at=START - 1)
        apply_records(self.shard, {PAGE_UPDATES.name: [record(PAGE_UPDATES, update)]}, ACCEPTED, 0)

    def crawled(self, *named, url=URL):
        """Crawls, of a batch, as (time, group); whether the host is written, and what is said."""
        outcomes = [CrawlOutcome(url, at, result="unchanged", group=group) for at, group in named]
        records = [record(CRAWL_OUTCOMES, one, n) for n, one in enumerate(outcomes)]
        done = apply_records(self.shard, {CRAWL_OUTCOMES.name: records}, ACCEPTED, 0.0)
        learn(done)
        news = material_news(done, 1e9, START)
        said = [decode(HostParameters, value).group for _, value in news.hosts]
        return bool(done.hosts), said

    @property
    def group(self):
        host = self.shard.hosts.records[self.shard.hosts.row(HOST)]
        return host["named_group"].decode(), float(host["named_since"])


def test_a_host_is_of_the_group_that_is_named_first_and_schedulers_are_told():
    estimator = Estimator()
    assert estimator.group == ("", NEVER)
    assert estimator.crawled((START, None)) == (False, [])
    assert estimator.crawled((START + 1, ONE)) == (True, [ONE])
    assert estimator.crawled((START + 2, ONE)) == (False, [])
    assert estimator.group == (ONE, START + 1)


def test_name_servers_that_tell_addresses_in_turn_move_a_host_once_a_day():
    estimator = Estimator()
    hours = [START + 3600 * n for n in range(1, 97)]
    moves = [estimator.crawled((at, (ONE, OTHER)[n % 2]))[0] for n, at in enumerate(hours)]
    assert sum(moves) == 4


def test_a_host_that_moves_is_found_by_the_first_crawl_a_day_after_it_came():
    estimator = Estimator()
    estimator.crawled((START, ONE))
    assert estimator.crawled((START + STAYS_SECONDS - 1, OTHER)) == (False, [])
    assert estimator.crawled((START + STAYS_SECONDS, OTHER)) == (True, [OTHER])
    # What comes late says where it was.
    assert estimator.crawled((START + 5, ONE)) == (False, [])


def test_a_batch_that_is_days_long_is_as_the_days_one_by_one():
    estimator = Estimator()
    estimator.crawled((START, ONE))
    later = [START + STAYS_SECONDS, START + 2 * STAYS_SECONDS]
    assert estimator.crawled((later[0], OTHER), (later[1], ONE)) == (True, [ONE])
    assert estimator.group == (ONE, later[1])


def test_crawls_of_pages_that_nobody_knows_name_groups_too():
    estimator = Estimator()
    estimator.crawled((START, ONE), url="https://a.example/unknown")
    assert estimator.group == (ONE, START)


def test_a_scheduler_hears_it_and_keeps_it_where_nothing_is_said():
    shard = make_shard(0, ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, np.inf, 1.0))
    reader = Reader(ACCEPTED)
    for group, expected in ((ONE, ONE), (None, ONE), (OTHER, OTHER)):
        said = HostParameters(HOST, 0.1, 0.5, [], [0.5] * 4, [1.0] * 6, START, epoch=3, group=group)
        reader.apply(shard, HOST_PARAMETERS.name, [record(HOST_PARAMETERS, said)])
        assert shard.groups.named(shard.hosts.find(HOST)) == expected


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("2001:db8:0:0:0:0:0:7", OTHER),  # as all of Java writes it
        ("2001:DB8::0007", OTHER),
        ("::ffff:203.0.113.7", ONE),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("203.0.113.007", "203.0.113.007"),
        ("cdn:A", "cdn:A"),
    ],
)
def test_a_host_is_at_one_address_however_crawlers_write_it(written, group):
    estimator = Estimator()
    assert estimator.crawled((START, written)) == (True, [group])
    assert estimator.crawled((START + STAYS_SECONDS, group)) == (False, [])


@pytest.mark.parametrize("group", ["", "x" * 65, "two words", "ä", 7, "a\x00b"])
def test_what_is_no_name_is_refused_with_the_outcome(group):
    outcome = {"url": URL, "crawled_at": START, "result": "changed", "group": group}
    with pytest.raises(BadMessage, match="group"):
        decode(CrawlOutcome, msgspec.json.encode(outcome))
