"""Whether signals are passed on, and before the ingesters say so."""

import math
from collections.abc import Iterator

from aiokafka import ConsumerRecord

from services.ingester.reading import GROUP
from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.counting import appended, signals_that_count
from services.verify.simulation.facts import Facts
from services.verify.simulation.faults import MOST_AHEAD_SECONDS
from shared.contracts.messages import PageSignal
from shared.contracts.topics import PAGE_SIGNALS

Place = tuple[str, int]
"""Topic and partition."""


def signals_arrived(ledger: Ledger, facts: Facts) -> Finding:
    """Every signal that was taken in goes on, but for those soon after one that did: by the
    broker's times before it is said to be done, as nobody would do it again."""
    passed: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for log in facts.broker.topics[PAGE_SIGNALS.name]:
        for at, _, signal in appended(PageSignal, log):
            passed.setdefault((signal.url, signal.source), []).append((signal.observed_at, at))
    least = ledger.settings.signal_debounce_seconds + 0.01 + _most_ahead(facts)
    done = _commits(facts)

    def offenders() -> Iterator[str]:
        for came_at, record, signal in signals_that_count(ledger, facts):
            others = passed.get((signal.url, signal.source), [])
            near = (at for seen, at in others if abs(seen - came_at) <= least)
            went_on = min(near, default=math.inf)
            where = f"{signal.url} of {signal.source} at {came_at - BEGINNING:.3f}"
            if went_on == math.inf:
                yield where
            elif went_on > (said := _done_at(done, record)):
                yield f"{where}: it went on at {went_on:.3f}, and was said to at {said:.3f}"

    what = "signals are passed on, and then they are done"
    return Finding.of("signals", what, offenders(), signals=len(ledger.signals))


def _commits(facts: Facts) -> dict[Place, list[tuple[float, int]]]:
    """When the ingesters have said before which offset all is done; virtual seconds."""
    commits: dict[Place, list[tuple[float, int]]] = {}
    for group in facts.broker.groups.all():
        if group.name.endswith(GROUP):
            for at, offsets in group.commits:
                for place, offset in offsets.items():
                    commits.setdefault(place, []).append((at, offset))
    return commits


def _done_at(done: dict[Place, list[tuple[float, int]]], record: ConsumerRecord) -> float:
    """When a record was said to be done; infinite: never."""
    said = done.get((record.topic, record.partition), [])
    return min((at for at, offset in said if offset > record.offset), default=math.inf)


def _most_ahead(facts: Facts) -> float:
    """By how many seconds a clock is wrong at most."""
    steps = [abs(2 * f.detail - 1) for f in facts.plan.faults if f.kind == "clock"]
    return MOST_AHEAD_SECONDS * max(steps, default=0.0)
