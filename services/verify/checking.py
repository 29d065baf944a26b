"""All checks on one run."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from aiokafka import ConsumerRecord

from services.verify import audit
from services.verify.bad_messages import STAGES
from services.verify.checks import announced, delivery, limits, pages, requests
from services.verify.checks.downtime import Downtimes, downtimes_of
from services.verify.checks.finding import Finding
from services.verify.checks.late_kernels import late_kernels
from services.verify.checks.memory import remembered
from services.verify.checks.recovery import recovery
from services.verify.draining import Memory
from services.verify.faults import SOFT, Injected
from services.verify.group_news import named_since
from services.verify.late_plans import changes_held
from services.verify.ledger import Ledger
from services.verify.plan import VerifyPlan
from services.verify.poison import Place
from services.verify.records import decoded
from services.verify.reference.state import State, read_state
from services.verify.relearning import (
    MOST_OUT_OF_ORDER,
    differences,
    in_order_of_time,
    out_of_order,
    relearn,
)
from services.verify.sending import Account
from services.verify.traffic import Expected
from shared.contracts.codec import decode
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    DEMAND_CURVES,
    HOST_LIMITS,
    HOST_PARAMETERS,
    MULTIPLIERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
)
from shared.runtime.settings import Settings

_READ_FROM_THE_LAST: Final = {
    topic.name: STAGES[topic.name]
    for topic in (PAGE_PARAMETERS, HOST_PARAMETERS, BANDWIDTH, DEMAND_CURVES, MULTIPLIERS)
}
"""Topics whose readers do not look back, and the kind of worker that reads them."""

LEARNED_TOPICS: Final = (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, HOST_LIMITS)
"""What there is to be learned from."""

_SERVERS: Final = ("broker", "postgres")
"""Without them no worker of any kind can do all that it should."""

_RARE: Final = ("removed pages", "pauses")
"""What these checks look for comes now and then only."""

_RARE_SECONDS: Final = 30.0
"""In so long it comes for sure."""

UNREAD_SECONDS: Final = 2.0
"""A message may have been there so long before its reader went down, and not have been read."""

HANDED_OVER_SECONDS: Final = 15.0
"""Shards go to others once a session has timed out, or who is new has started: though crawls may be
at the budget long before, who has them then loads a snapshot of so much later."""


@dataclass(frozen=True, slots=True)
class Differences:
    """In what a version differs from this one, beside what it learns from the same events."""

    counted: Collection[str] = ()
    """Results of crawls that it counted, and this one does not."""
    not_announced: Collection[str] = ()
    """What it did not say of pages."""
    not_kept: Collection[str] = ()
    """What it did not store of pages."""


THIS: Final = Differences()
BEFORE: Final = Differences(("gone",), ("activity",), ("failures", "404s"))
"""Of 0.1 and 0.2."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a run besides what stands on the topics and in Postgres."""

    plan: VerifyPlan
    settings: Settings
    database_url: str
    beginning_url: str
    """Database with the state before the first worker started."""
    limits: Mapping[str, float]
    """Crawls per second, by host."""
    group_limits: Mapping[str, float]
    """Crawls per second, by group."""
    addresses: Mapping[str, str]
    """Host → the group that crawlers name, of those that they say so of."""
    open_bounds: Mapping[str, int]
    """Host → requests that may be open at once."""
    held_at: Mapping[str, float]
    """URL → when the copy was crawled that was held at the beginning; −inf: none was."""
    accounts: Sequence[Account]
    budget_changes: Sequence[tuple[float, float]]
    injected: Sequence[Injected]
    slow: Sequence[tuple[float, float]]
    """Periods in which the verification's own messages took long, Unix seconds."""
    transactions: Mapping[str, int]
    """How the crawlers' transactions ended, and how many did."""
    expected: Expected
    poison: Mapping[Place, str]
    """What each bad message is, by where it stands."""
    poison_written_at: Mapping[Place, float]
    """Unix seconds."""
    poison_tried: Collection[int]
    """Hashes of all bad messages that were sent, acknowledged or not."""
    poison_refused: int
    """How many were not."""
    memory: Memory
    """Of the schedulers, at the end."""
    logs: Mapping[str, str]
    """Instance → what it wrote."""
    drained: bool
    began: float
    """Unix seconds at which the system was at its budget, and the faults began."""


async def check(facts: Facts) -> list[Finding]:
    """Read everything, and check every promise."""
    ledger = await Ledger.of(facts.settings, facts.database_url)
    return await asyncio.to_thread(_check, facts, ledger)


def _check(facts: Facts, ledger: Ledger) -> list[Finding]:
    return [
        found.demanded() if demands(facts.plan, found.check) else found
        for found in _findings(facts, ledger)
    ]


def demands(plan: VerifyPlan, check: str) -> bool:
    """Whether a plan demands that a check looks at something: if it does not, it has failed."""
    if check == "dead letters":
        return "poison" in plan.faults
    if check == "recovery":
        return not SOFT.issuperset(plan.faults)
    return check not in _RARE or plan.seconds >= _RARE_SECONDS


def _findings(facts: Facts, ledger: Ledger) -> list[Finding]:
    changes, age = facts.budget_changes, facts.plan.max_age_seconds
    end, held_changes = changes[-1][0], changes_held(changes, ledger, facts.slow)
    picking = downtimes_of(facts.injected, "scheduler", *_SERVERS)
    sending, away = [*picking, *facts.slow], downtimes_of(facts.injected, "broker")
    crawling = downtimes_of(facts.injected, "scheduler", "coordinator", *_SERVERS)
    due_changes = [(at, facts.plan.part_for_all * rate) for at, rate in changes]
    held = {identify(url).page_id: time for url, time in facts.held_at.items()}
    copies = {url: time for url, time in facts.held_at.items() if time > -np.inf}
    stored, owners = read_state(facts.database_url), audit.read_owners(facts.database_url)
    expected = pages.without(facts.expected, unsure_of(facts.accounts))
    material, other = facts.settings.material_change, BEFORE if facts.plan.before else THIS
    updates = [update for _, update in decoded(PageUpdate, ledger.raw[PAGE_UPDATES.name])]
    at_rest = [] if facts.drained else ["messages are still waiting to be applied"]
    return [
        Finding.of("rest", "without a budget the system comes to rest", at_rest, looked_at=1),
        delivery.published(ledger, *facts.accounts),
        delivery.refused(ledger, away, *facts.accounts),
        *delivery.crawls_applied(ledger, held, may_count=other.counted),
        *([] if facts.plan.before else _learned(facts, ledger, stored)),
        announced.page_parameters(ledger, stored, owners, material, other.not_announced),
        announced.host_parameters(ledger, stored, owners, material),
        remembered(ledger, stored, owners, facts.memory.sample, other.not_kept),
        delivery.signals_passed(ledger),
        delivery.dead_letters(
            ledger,
            facts.poison,
            may_be_skipped(facts.poison_written_at, facts.injected),
            facts.poison_tried,
            facts.poison_refused,
        ),
        requests.in_flight_twice(ledger),
        requests.unanswered(ledger),
        requests.forgotten_crawls(ledger, age),
        requests.asked_while_away(ledger, updates),
        requests.slots_filled_once(ledger),
        requests.right_partitions(ledger),
        limits.budget(ledger, held_changes, end),
        limits.budget_by_arrival(ledger, held_changes, sending),
        limits.filled_in_time(ledger, sending, away, facts.began),
        limits.hosts(ledger, facts.limits),
        limits.hosts_by_arrival(ledger, facts.limits, sending),
        limits.blocked_hosts(ledger, picking),
        *([] if facts.plan.before else _further_limits(facts, ledger, sending, crawling)),
        pages.known_to_shards(ledger, facts.memory.pages),
        pages.as_updated(ledger, expected),
        pages.removed_are_left(ledger, expected, picking),
        pages.visited(
            *(ledger, copies, (facts.began, end), age, crawling, expected.added, due_changes)
        ),
        *([] if facts.plan.before else [late_kernels(facts.logs)]),
        recovery(ledger, facts.injected, changes, end),
    ]


def _further_limits(
    facts: Facts, ledger: Ledger, sending: Downtimes, away: Downtimes
) -> list[Finding]:
    """What workers of 0.2 do not know."""
    named = named_since(ledger, facts.addresses, away, HANDED_OVER_SECONDS)
    return [
        limits.groups(ledger, facts.group_limits, named),
        limits.groups_by_arrival(ledger, facts.group_limits, sending, named),
        requests.open_at_once(ledger, facts.open_bounds),
    ]


def unsure_of(accounts: Sequence[Account]) -> set[str]:
    """Pages about which an update was not acknowledged: whether it came nobody knows."""
    refused = [one for account in accounts for one in account.refused]
    return {decode(PageUpdate, one.value).url for one in refused if one.topic == PAGE_UPDATES.name}


def may_be_skipped(
    poison_written_at: Mapping[Place, float], injected: Sequence[Injected]
) -> set[Place]:
    """Bad messages that came while their reader was down, to those who never look back.

    A scheduler reads what was learned from where its snapshot ends, which may be after them, and a
    coordinator reads the last messages only. Nothing that matters is lost: no good message is.

    Args:
        poison_written_at: where each bad message stands, and when it was written, Unix seconds.
        injected: the faults.
    """
    readers = set(_READ_FROM_THE_LAST.values())
    down = {reader: downtimes_of(injected, reader, *_SERVERS) for reader in readers}
    return {
        place
        for place, at in poison_written_at.items()
        if place[0] in _READ_FROM_THE_LAST
        and any(
            begin - UNREAD_SECONDS <= at <= end + HANDED_OVER_SECONDS
            for begin, end in down[_READ_FROM_THE_LAST[place[0]]]
        )
    }


def _learned(facts: Facts, ledger: Ledger, stored: State) -> list[Finding]:
    records = ledger.by_partition(LEARNED_TOPICS)
    relearned = relearn(
        facts.settings, ledger.layout, facts.beginning_url, ledger.transactions, records
    )
    of_pages, of_hosts = differences(stored, relearned)
    what = "what is learned of {} equals a run without faults on the same events"
    return [
        *delivery.histories(ledger, relearned),
        _in_order(facts, ledger, records),
        Finding.of(
            "positions",
            "positions in Postgres go on from where they stood",
            relearned.gaps,
            looked_at=relearned.moves,
        ),
        Finding.of(
            "parameters",
            what.format("pages"),
            of_pages,
            looked_at=len(relearned.state.pages),
            transactions=len(ledger.transactions),
        ),
        Finding.of(
            "hosts",
            what.format("hosts"),
            of_hosts,
            looked_at=len(relearned.state.hosts),
            refits=sum(bool(one.refitted) for one in ledger.transactions),
        ),
    ]


def _in_order(
    facts: Facts, ledger: Ledger, records: Mapping[tuple[str, int], Sequence[ConsumerRecord]]
) -> Finding:
    at = ledger.transactions[-1].at if ledger.transactions else facts.began
    expected = in_order_of_time(facts.settings, ledger.layout, facts.beginning_url, at, records)
    share = out_of_order(ledger.observations, expected)
    late = [f"{share:.1%} of the crawl records are other"] if share > MOST_OUT_OF_ORDER else []
    return Finding.of(
        "in order",
        f"all but {MOST_OUT_OF_ORDER:.0%} of the crawl records are those of the events in order "
        "of time",
        late,
        looked_at=len(expected),
        out_of_order=round(share, 4),
    )
