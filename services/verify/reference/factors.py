"""What directories and signals say of the rates of pages: the rule once more, page by page."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from services.verify.reference.state import ACTIVITY_BINS, HostState, PageState, activity_of
from shared.policy.estimation.bursts import trusts_bursts
from shared.policy.estimation.map_kernel import TAIL

BELIEF: Final = 5.0
"""Pages' worth of belief that a factor is 1."""

ROUNDS: Final = 4
MOST_DIRECTORIES: Final = 1024
TOLERANCE: Final = 0.01
"""Factors that move by less, relatively, stay as they were."""

_LEAST, _MOST = 1e-3, 1e3
_LEAST_STEP, _MOST_STEP = 0.2, 5.0
_SHORTEST, _LONGEST = 1e-9, 1e9

Sums = tuple[dict[Hashable, float], dict[Hashable, float]]
"""By group: rates seen over what is expected, and pages' worth of them."""


def refit_factors(hosts: Sequence[HostState], pages: Sequence[PageState]) -> None:
    """Fit factors anew; hosts whose factors hardly move keep theirs."""
    by_host: dict[str, list[PageState]] = defaultdict(list)
    for page in pages:
        by_host[page.host].append(page)
    for host in hosts:
        if host.name in by_host:
            _refit(host, by_host[host.name])


def _refit(host: HostState, pages: Sequence[PageState]) -> None:
    seen = [_seen(page, _heard(host, page)) for page in pages]
    shape, mean = host.prior_shape, host.prior_shape / host.prior_rate
    directory = {page.directory: 1.0 for page in pages}
    activity = [1.0] * ACTIVITY_BINS
    weights: dict[Hashable, float] = {}

    def sums(group: Callable[[PageState], Hashable], expected: Sequence[float]) -> Sums:
        rates: dict[Hashable, float] = defaultdict(float)
        worth: dict[Hashable, float] = defaultdict(float)
        for page, (changes, days), rate in zip(pages, seen, expected, strict=True):
            weight = 1.0 / (shape / rate + days)
            rates[group(page)] += changes * weight / rate
            worth[group(page)] += days * weight
        return rates, worth

    for _ in range(ROUNDS):
        expected = [mean * directory[p.directory] * activity[activity_of(p)] for p in pages]
        rates, worth = sums(lambda _: 0, expected)
        step = (rates[0] + BELIEF) / (worth[0] + BELIEF)
        mean *= min(max(step, _LEAST_STEP), _MOST_STEP)
        expected = [mean * activity[activity_of(page)] for page in pages]
        rates, weights = sums(lambda page: page.directory, expected)
        directory = {code: _ratio(rates[code], weights[code]) for code in directory}
        rates, worth = sums(activity_of, [mean * directory[page.directory] for page in pages])
        bins = range(ACTIVITY_BINS)
        activity = _rising(
            [_ratio(rates[one], worth[one]) for one in bins], [worth[one] + BELIEF for one in bins]
        )
    if not trusts_bursts(host.signals, host.precision):
        activity = [1.0] * ACTIVITY_BINS
    differing = [code for code, factor in directory.items() if abs(factor - 1.0) > TOLERANCE]
    kept = sorted(differing, key=lambda code: (-weights[code], code))[:MOST_DIRECTORIES]
    _take(host, activity, {code: directory[code] for code in sorted(kept)})


def _take(host: HostState, activity: list[float], directories: dict[int, float]) -> None:
    pairs = [*zip(activity, host.activity, strict=True)]
    pairs += [
        (directories.get(code, 1.0), host.directories.get(code, 1.0))
        for code in directories.keys() | host.directories.keys()
    ]
    if any(abs(now - before) > TOLERANCE * before for now, before in pairs):
        host.activity, host.directories = activity, directories


def _heard(host: HostState, page: PageState) -> float:
    """The rate of a page by the Gamma prior without its tail: where changes would balance it."""
    shape, rate = host.prior_shape, host.prior_rate / host.factor_of(page)
    least, most = 1e-30, page.unsignalled_change_rate
    if most * rate <= shape + TAIL:
        return most
    for _ in range(200):
        middle = math.sqrt(least * most)
        changes, covered = _seen(page, middle)
        if shape + changes > middle * (rate + covered):
            least = middle
        else:
            most = middle
    return most


def _seen(page: PageState, rate: float) -> tuple[float, float]:
    """Changes without a signal that a page's records say there were, and their days."""
    changes = covered = 0.0
    for record in page.records:
        days = min(max(record.interval_days, _SHORTEST), _LONGEST)
        covered += days
        if record.changed:
            own = rate * days
            told = sum(
                kappa * number
                for kappa, number in zip(page.source_evidence, record.signals, strict=True)
            )
            changes += own / -math.expm1(-(own + told))
    return changes, covered


def _ratio(rates: float, worth: float) -> float:
    return min(max((rates + BELIEF) / (worth + BELIEF), _LEAST), _MOST)


def _rising(values: Iterable[float], weights: Iterable[float]) -> list[float]:
    """The never falling numbers that are nearest to some, by their weights."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            before = blocks.pop()
            total = before[1] + block[1]
            joined = (before[0] * before[1] + block[0] * block[1]) / total
            block = (joined, total, before[2] + block[2])
        blocks.append(block)
    return [value for value, _, count in blocks for _ in range(count)]
