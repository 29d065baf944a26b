"""What was passed on while shards grew counts in the order in which it then came."""

from made_ledgers import SHARDS, answered, asked, ledger, stored

from services.verify.checks import delivery
from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout

GROWN = 2 * SHARDS
HOST = next(h for h in (f"host-{n}.example" for n in range(99)) if shard_of(h, GROWN) >= SHARDS)
URL = f"https://{HOST}/0"
BEFORE, NOW = shard_of(HOST, SHARDS), shard_of(HOST, GROWN)


def offences(places, crawls):
    """Of a page that was crawled at 10, 20 and 30."""
    outcomes = [answered(asked(at - 0.1, URL, partition=place), at) for place, at in places]
    layout = Layout(GROWN, SHARDS, frozenset(range(SHARDS)))
    run = ledger(layout=layout, outcomes=outcomes, pages=[stored(URL, crawls, 30.0)])
    return [finding.count for finding in delivery.crawls_applied(run, {})]


def test_an_outcome_that_is_passed_on_after_a_later_one_has_come_changes_nothing():
    late = [(BEFORE, 10.0), (BEFORE, 20.0), (NOW, 30.0), (NOW, 20.0)]

    assert offences(late, 2) == offences(late, 3) == [0, 0]
    assert offences(late, 1) == [1, 0]
    assert offences(late, 4) == [0, 1]


def test_an_outcome_that_is_passed_on_in_time_counts():
    in_time = [(BEFORE, 10.0), (BEFORE, 20.0), (NOW, 20.0), (NOW, 30.0)]

    assert offences(in_time, 3) == [0, 0]
    assert offences(in_time, 2) == [1, 0]


def test_a_copy_on_a_partition_that_never_was_its_hosts_counts_nowhere():
    """As a bad message may be, which is refused there."""
    strange = next(n for n in range(GROWN) if n % SHARDS != BEFORE)
    outcomes = [(BEFORE, 10.0), (BEFORE, 20.0), (NOW, 30.0), (strange, 20.0)]

    assert offences(outcomes, 3) == [0, 0]
    assert offences(outcomes, 2) == [1, 0]
    assert offences(outcomes, 4) == [0, 1]
