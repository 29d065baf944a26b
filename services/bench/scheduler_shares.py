"""The scheduler's core with parts of the slots kept for reasons and for classes: what they cost."""

import statistics
from typing import Any, Final

import numpy as np

from services.bench.scheduled_pages import Population, make_filled_shard
from services.bench.scheduler_driver import Driver
from services.scheduler.state.rules import ClassRules
from shared.runtime.reason_shares import shares_by_queue

_PAGES: Final = 500_000
_HOSTS: Final = 20_000
_RATE: Final = 1_000.0
"""Crawls per second: of one shard of many."""

_BOUND: Final = 0.02
_OVER_AGE: Final = 0.1
"""So many pages have a maximum age, by which they take such a part of the slots."""

_REASONS: Final = {"value": 0.5, "max-age": 0.05, "new": 0.2}
_CLASSES: Final = (ClassRules("news", 2.0, 0.0, 0), ClassRules("partner", 1.0, 0.3, 1))
_TICK_SECONDS: Final = 0.1
_SETTLING_SECONDS: Final = 30.0
_SECONDS: Final = 10.0
_ROUNDS: Final = 5


def run(seed: int) -> dict[str, Any]:
    """The same pages with shares for reasons, with classes, and with neither, in turns.

    Returns:
        by setting, processor time of picking as a share of one core's, and `ratio`, that over what
        it takes with neither (the middle one of some rounds); `partner_share`, part of the crawls
        that pages of the class with a share of 0.3 had, which are a tenth of all.
    """
    free = _loaded(seed)
    loaded = {
        "reason_shares": _loaded(seed, reasons=True),
        "classes": _loaded(seed, classes=True),
        "both": _loaded(seed, reasons=True, classes=True),
    }
    for driver in (free, *loaded.values()):
        _pass_time(driver, _SETTLING_SECONDS)
    times: dict[str, list[float]] = {name: [] for name in loaded}
    ratios: dict[str, list[float]] = {name: [] for name in loaded}
    partners = 0
    for _ in range(_ROUNDS):
        without, _ = _pass_time(free, _SECONDS)
        for name, driver in loaded.items():
            taken, of_partner = _pass_time(driver, _SECONDS)
            times[name].append(taken / _SECONDS)
            ratios[name].append(taken / without)
            partners += of_partner if name == "classes" else 0
    answer: dict[str, Any] = {
        name: {
            "select_share": round(statistics.median(times[name]), 4),
            "ratio": round(statistics.median(ratios[name]), 3),
            "ratios": [round(ratio, 3) for ratio in ratios[name]],
        }
        for name in loaded
    }
    share = partners / (_RATE * _SECONDS * _ROUNDS)
    return {"pages": _PAGES, "partner_share": round(share, 4)} | answer


def _loaded(seed: int, *, reasons: bool = False, classes: bool = False) -> Driver:
    """A shard with a tenth of its pages in each class, whether these are heeded or not."""
    population = Population(_PAGES, _RATE, _RATE / 2, _HOSTS, seed)
    shares = shares_by_queue(_REASONS) if reasons else ()
    shard, _ = make_filled_shard(population, shares=shares, classes=_CLASSES if classes else ())
    random = np.random.default_rng(seed)
    bound = random.random(_PAGES) < _BOUND
    shard.pages["max_age"][:_PAGES][bound] = _BOUND * _PAGES / (_OVER_AGE * _RATE)
    # Of ten pages one is news, and one is the partner's.
    numbers = random.integers(0, 10, _PAGES).astype(np.int16)
    numbers[numbers > len(_CLASSES)] = 0
    names = {place + 1: rule.name for place, rule in enumerate(_CLASSES)}
    shard.classes.load(names, numbers)
    shard.records["page_class"][:_PAGES] = numbers
    importance = shard.pages["importance"][:_PAGES].astype(np.float64)
    shard.pages["importance"][:_PAGES] = shard.classes.weighted(importance, numbers)
    return Driver(shard, seed)


def _pass_time(driver: Driver, seconds: float) -> tuple[float, int]:
    """Let time pass; the processor time of picking, and the crawls of the partner's pages."""
    driver.forget()
    partners = 0
    for _ in range(round(seconds / _TICK_SECONDS)):
        picks = driver.tick(_TICK_SECONDS, _RATE, _RATE / 2)
        rows = picks["row"][picks["row"] >= 0]
        partners += int((driver.shard.records["page_class"][rows] == len(_CLASSES)).sum())
    return driver.select_cpu, partners
