"""What schedulers were told, and what they remember, is compared with Postgres page by page."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from services.verify.checks import announced
from services.verify.checks.memory import Remembered, remembered
from services.verify.ledger import Asked, Ledger
from services.verify.reference.fitting import evidence_of
from services.verify.reference.state import CrawlRecord, HostState, PageState, State
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.layout import ALONE
from shared.contracts.messages import CrawlRequest, HostParameters, PageParameters
from shared.store.page_status import GONE, REMOVED

NOW = 1.7e9
MATERIAL = 0.05
URL = "https://a.example/0"
PAGE = identify(URL)
EPOCH = 7
OWNERS = {0: [EPOCH]}
SETTINGS = SimpleNamespace(
    partitions=1,
    material_change=MATERIAL,
    request_timeout_seconds=8.0,
    default_max_age_days=0.5,
    default_host_crawls_per_second=1.0,
)


def stored(**changes):
    """A page that was crawled and signalled, and its host."""
    page = PageState(PAGE.page_id, 0, PAGE.host, importance=3.0, first_seen_at=NOW - 100.0)
    page.last_crawled_at, page.last_signal_at = NOW - 50.0, NOW - 20.0
    page.records = [CrawlRecord(1.0, (1, 0, 0, 0), True)]
    page.unsignalled_change_rate, page.signal_evidence, page.signal_rate = 0.5, 0.7, 2.0
    page.signals = page.signal_count = 1
    host = HostState(PAGE.host, 0, 5.0, NOW + 30.0)
    host.sources = ["feed"]
    host.signals[0] = 9.0
    return State({page.page_id: replace(page, **changes)}, {host.name: host})


def ledger(pages=(), hosts=(), requests=()):
    def records(messages):
        return [SimpleNamespace(value=encode(message), partition=0) for message in messages]

    return Ledger(
        settings=SETTINGS,
        layout=ALONE,
        raw={"page-parameters": records(pages), "host-parameters": records(hosts)},
        requests=list(requests),
        outcomes=[],
        signals=[],
        page_signals=[],
        pages=[],
        observations=[],
        transactions=[],
    )


def page_message(alpha=0.5, kappa=0.7, gamma=2.0, epoch=EPOCH):
    return PageParameters(PAGE.page_id, PAGE.host, alpha, kappa, gamma, NOW, epoch)


def host_message(epoch=EPOCH, **changes):
    host = stored().hosts[PAGE.host]
    message = HostParameters(
        host=host.name,
        unsignalled_change_rate=host.prior_shape / host.prior_rate,
        signal_evidence=evidence_of(host),
        sources=["feed"],
        source_evidence=[math.log(2)] * 4,
        burst_multipliers=[1.0] * 6,
        updated_at=NOW,
        epoch=epoch,
    )
    return HostParameters(**({f: getattr(message, f) for f in message.__struct_fields__} | changes))


def pages_found(*messages, owners=OWNERS, **changes):
    run = ledger(pages=messages)
    return announced.page_parameters(run, stored(**changes), owners, MATERIAL).count


def hosts_found(*messages, owners=OWNERS):
    return announced.host_parameters(ledger(hosts=messages), stored(), owners, MATERIAL).count


@pytest.mark.parametrize("name", ["alpha", "kappa", "gamma"])
def test_an_announcement_that_is_out_of_date_is_found(name):
    right = {"alpha": 0.5, "kappa": 0.7, "gamma": 2.0}[name]

    assert pages_found(page_message(**{name: right / 1.04})) == 0
    assert pages_found(page_message(**{name: right / 1.06})) == 1


def test_the_last_announcement_stands():
    assert pages_found(page_message(alpha=9.0), page_message()) == 0
    assert pages_found(page_message(), page_message(alpha=9.0)) == 1


def test_what_a_replaced_estimator_announces_does_not_count():
    late = page_message(alpha=9.0, epoch=EPOCH - 1)

    assert pages_found(page_message(), late) == 0
    assert pages_found(late) == 1


def test_a_page_that_was_never_announced_is_found_if_there_is_something_to_say():
    assert pages_found() == 1
    assert pages_found(page_message(alpha=None, kappa=None)) == 2
    assert pages_found(records=[], signal_rate=0.0) == 0
    assert pages_found(status=REMOVED) == 0


def test_a_new_owner_takes_what_the_database_has_for_announced():
    old = page_message(alpha=0.5 / 1.08)

    assert pages_found(old) == 1
    assert pages_found(old, owners={0: [EPOCH, EPOCH + 5]}) == 0
    assert pages_found(page_message(alpha=0.5 / 1.2), owners={0: [EPOCH, EPOCH + 5]}) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"unsignalled_change_rate": 0.02},
        {"signal_evidence": 0.5},
        {"sources": []},
        {"source_evidence": [0.5, 0.7, 0.7, 0.7]},
        {"burst_multipliers": [1.0, 2.0, 1.0, 1.0, 1.0, 1.0]},
    ],
)
def test_a_host_that_is_out_of_date_is_found(changes):
    assert hosts_found(host_message()) == 0
    assert hosts_found(host_message(**changes)) == 1


def test_a_host_that_was_never_announced_is_found_if_there_is_something_to_say():
    assert hosts_found() == 1  # a source


def described(**changes):
    """What a scheduler says of the page."""
    host = {"max_crawls_per_second": 5.0, "blocked_until": NOW + 30.0}
    host |= changes.pop("host", {})
    return {
        "status": "active",
        "last_crawled_at": NOW - 50.0,
        "last_signal_at": NOW - 20.0,
        "failures": 0,
        "misses": 0,
        "signals": 1.3,
        "importance": 3.0,
        "max_age_days": 0.5,
        "unsignalled_change_rate": 0.51,
        "signal_evidence": 0.7,
        "signal_rate": 2.0,
        "in_flight": False,
        "host": host,
    } | changes


def memory_found(page, requests=(), hosts=(), owners=OWNERS, **changes):
    run, sample = ledger(requests=requests, hosts=hosts), [Remembered(URL, NOW, page)]
    return remembered(run, stored(**changes), owners, sample).count


def test_a_scheduler_that_knows_what_postgres_does_passes():
    assert memory_found(described()) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "gone"},
        {"last_crawled_at": NOW - 51.0},
        {"last_crawled_at": None},
        {"last_signal_at": NOW - 21.0},
        {"failures": 2},
        {"misses": 1},
        {"signals": 0.0},
        {"importance": 1.0},
        {"page_class": "news"},
        {"max_age_days": None},
        {"unsignalled_change_rate": 0.6},
        {"signal_evidence": 0.8},
        {"signal_rate": 0.0},
        {"host": {"max_crawls_per_second": 1.0}},
        {"host": {"blocked_until": None}},
    ],
)
def test_a_scheduler_that_knows_something_else_is_found(changes):
    assert memory_found(described(**changes)) == 1


def test_what_was_announced_may_be_off_by_a_share_of_itself():
    just_not_news = {"unsignalled_change_rate": 0.5 / (1.0 - MATERIAL)}

    assert memory_found(described(**just_not_news)) == 0
    assert memory_found(described(unsignalled_change_rate=0.51 / (1.0 - MATERIAL))) == 1


@pytest.mark.parametrize("changes", [2, 14, 16])
def test_with_each_change_of_owners_it_may_be_off_by_as_much_again(changes):
    owners = {0: [EPOCH + number for number in range(changes)]}
    furthest = 0.5 / (1.0 - MATERIAL) ** changes

    assert memory_found(described(unsignalled_change_rate=0.5), owners=owners) == 0
    assert memory_found(described(unsignalled_change_rate=furthest), owners=owners) == 0
    beyond = described(unsignalled_change_rate=1.02 * furthest)
    assert memory_found(beyond, owners=owners) == 1


def test_a_burst_multiplier_is_one_that_was_announced_for_pages_of_that_age():
    once, now = [1.0, 1.0, 3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 1.0, 1.0, 1.0]
    hosts = [host_message(burst_multipliers=m) for m in (once, now)]
    bursting = {"multiplier": 2.0, "last_changed_at": NOW - 90.0}

    for multiplier, found in ((2.0, 0), (3.0, 0), (1.0, 0), (2.4, 1), (5.0, 1)):
        page = described(unsignalled_change_rate=0.5 * multiplier)
        assert memory_found(page, hosts=hosts, **bursting) == found
    never_changed = {"last_changed_at": -math.inf}
    page = described(unsignalled_change_rate=0.5 * 3.0)
    assert memory_found(page, hosts=hosts, **never_changed) == 1


def test_pages_that_are_missing_or_too_many_are_found():
    assert memory_found(None) == 1
    assert memory_found(None, status=REMOVED) == 0
    assert memory_found(described(), status=REMOVED) == 1
    assert memory_found(described(status="gone"), status=GONE) == 0


def test_a_request_in_flight_that_was_forgotten_is_found():
    request = CrawlRequest("r", PAGE.page_id, URL, PAGE.host, NOW - 2, NOW + 6, 1, 1, "value")
    waiting = [Asked(request, 0, 0, NOW - 2)]

    assert memory_found(described(), waiting) == 1
    assert memory_found(described(in_flight=True), waiting) == 0
    assert memory_found(described(in_flight=True)) == 1


def test_a_page_without_records_goes_by_its_host():
    host = stored().hosts[PAGE.host]
    rate = host.prior_shape / host.prior_rate
    page = described(unsignalled_change_rate=rate, signal_evidence=evidence_of(host))
    unknown = {"records": [], "unsignalled_change_rate": math.nan, "signal_evidence": math.nan}

    assert memory_found(page, **unknown) == 0
    assert memory_found(described(), **unknown) >= 1
