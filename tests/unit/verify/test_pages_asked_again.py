"""Simulated pages that nobody asks for again are found, unless their hosts had all they may."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from made_ledgers import SHARDS, TIMEOUT, URL, answered, asked, ledger

from services.verify.simulation.asking import asked_again
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.truth import Page
from services.verify.simulation.workers import MAX_AGE_SECONDS
from shared.contracts.identity import identify
from shared.contracts.layout import Layout
from shared.contracts.topics import DEMAND_CURVES

SECONDS, BOUND_SECONDS = 40.0, 12.0
LAST_ASKED = 2.0
DUE = LAST_ASKED + MAX_AGE_SECONDS
RATE = 1.0
LIMIT = int(RATE * (SECONDS - DUE))
"""Requests that the host may have from when the page is due."""


class PlentyOfSlots:
    def allotted(self, _shard, begin, end):
        return 100.0 * max(end - begin, 0.0)


class FewSlotsForOne:
    """The shard of the page has hardly any, the others all."""

    def allotted(self, shard, begin, end):
        return (0.01 if shard == Layout.of(SHARDS).shard_of(identify(URL).host) else 100.0) * (
            end - begin
        )


def found_of(others, reason="max-age", *, timeline, has_parts=False, rate=RATE, open_bounds=None):
    """What is found, where the host was asked for so many others since a page was due: nobody
    answered them."""
    page = identify(URL)
    first = asked(BEGINNING + LAST_ASKED)
    times = np.linspace(DUE, SECONDS, others, endpoint=False)
    requests = [
        asked(BEGINNING + float(time), f"https://{page.host}/other/{number}", reason=reason)
        for number, time in enumerate(times)
    ]
    truth = SimpleNamespace(
        pages=[Page(URL, page.host, 0, page.page_id, 0.0)],
        unsure=set(),
        at_address={},
        group_limits={},
        host_limits={page.host: rate},
        open_bounds=open_bounds or {},
    )
    scale = SimpleNamespace(seconds=SECONDS, bound_seconds=BOUND_SECONDS, has_parts=has_parts)
    facts = SimpleNamespace(
        plan=SimpleNamespace(scale=scale, faults=()),
        truth=truth,
        database=SimpleNamespace(layout=Layout.of(SHARDS)),
        broker=SimpleNamespace(topics={DEMAND_CURVES.name: []}),
        ended_at=SECONDS - BOUND_SECONDS,
        split_since=lambda _seconds: set(),
        unread=lambda _topic: set(),
    )
    run = ledger(
        requests=[first, *requests], outcomes=[answered(first, BEGINNING + LAST_ASKED + 0.1)]
    )
    return asked_again(run, facts, timeline)


def forgotten(*args, **options):
    """How many pages are, where there are slots for all."""
    found, starved = found_of(*args, timeline=PlentyOfSlots(), **options)
    assert starved.passed
    return found.count


def starved(*args, **options):
    """How many pages are of shards without slots, while others have them."""
    return found_of(*args, timeline=FewSlotsForOne(), **options)[1].count


def test_a_page_that_is_not_asked_for_again_is_found():
    assert forgotten(0) == 1


@pytest.mark.parametrize(("missing", "found"), [(0, 0), (1, 0), (2, 1)])
def test_a_host_that_had_its_limit_of_due_pages_leaves_others_waiting(missing, found):
    """One less: its bucket may have been empty when the page was due."""
    assert forgotten(LIMIT - missing) == found


def test_what_is_crawled_for_its_value_does_not_come_before_what_is_due():
    assert forgotten(LIMIT, "value") == 1


def test_it_does_where_parts_of_the_slots_are_kept():
    assert forgotten(LIMIT, "value", has_parts=True) == 0


def test_a_host_with_a_bound_of_open_requests_may_have_as_many_as_time_out():
    """Each that nobody answers keeps its place until then."""
    bound = 4
    few = int(bound / TIMEOUT * (SECONDS - DUE))
    host = identify(URL).host
    assert few < LIMIT
    assert forgotten(few, rate=math.inf, open_bounds={host: bound}) == 0
    assert forgotten(few - 2, rate=math.inf, open_bounds={host: bound}) == 1


def test_a_shard_without_slots_while_others_have_them_is_found():
    assert starved(0) == starved(1) == 1


def test_what_a_shard_left_empty_while_a_host_waited_in_vain_comes_back_later():
    """The host may have no more requests open, and nobody answers the one that is."""
    bound = {identify(URL).host: 1}
    assert starved(1, rate=math.inf, open_bounds=bound) == 0
    assert starved(0, rate=math.inf, open_bounds=bound) == 1
