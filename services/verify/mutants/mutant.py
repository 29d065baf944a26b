"""A fault that is planted into the workers, and the promise that it breaks."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from services.verify.simulation.plan import Kind, Scale

Planted = AbstractContextManager[Any]

Plant = Callable[[], Planted]
"""Has the fault in the workers for as long as its context lasts."""


class Promise(StrEnum):
    """What is promised, in the words of docs/promises.md."""

    BEST = "The most valuable page is crawled next"
    SIGNALS = "Signals from anyone"
    BUDGET = "No second holds one crawl more"
    NEW_BUDGET = "A new budget holds within two seconds"
    HOSTS = "No host is crawled above its limit"
    LOST = "Nothing is lost"
    TWICE = "Nothing counts twice"
    FORGOTTEN = "No page is forgotten"
    AWAY = "Servers may be away for an hour"
    TRANSACTIONS = "Producers may use transactions"
    KILLED = "Any worker may be killed at any moment"
    BAD = "One bad message stops nothing"
    GAP = "A gap is never silent"
    GROWN = "Shards become more while everything runs"


HELD_BY: Final[dict[Promise, tuple[str, ...]]] = {
    Promise.BEST: ("picks", "learned", "memory"),
    Promise.SIGNALS: ("signals", "partitions", "dead letters", "memory"),
    Promise.BUDGET: ("slots", "budget", "in time"),
    Promise.NEW_BUDGET: ("new budget",),
    Promise.HOSTS: (
        "host limits",
        "group limits",
        "group limits by arrival",
        "open at once",
        "addresses",
        "memory",
    ),
    Promise.LOST: (
        *("rest", "stored", "crawls applied", "pages", "crawl records", "signals", "memory"),
    ),
    Promise.TWICE: ("crawls applied once", "stored", "pages", "crawl records", "memory"),
    Promise.FORGOTTEN: ("in flight", "crawls in a row", "away", "forgotten", "starved", "memory"),
    Promise.AWAY: ("rest", "ready", "owners", "pages", "signals"),
    Promise.TRANSACTIONS: ("pages", "owners", "ready"),
    Promise.KILLED: (
        *("ready", "owners", "memory", "loads", "crawls in a row", "leaders", "new budget"),
    ),
    Promise.BAD: ("dead letters", "rest"),
    Promise.GAP: ("stopped", "gaps", "pages", "signals"),
    Promise.GROWN: (
        *("growth", "held", "partitions", "in flight", "owners", "memory", "rest"),
        *("crawls applied", "pages", "crawl records", "crawls in a row"),
    ),
}
"""By which of the simulator's checks (`services.verify.simulation.checks`)."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault."""

    name: str
    promise: Promise
    what: str
    """What is wrong with the workers, in a sentence."""
    plant: Plant
    scale: Scale
    """Of the simulations that show it."""


_CATALOGUE: Final[dict[str, Mutant]] = {}


def catalogue() -> tuple[Mutant, ...]:
    """All mutants of the modules that were imported, by promise and name."""
    order = list(Promise)
    return tuple(sorted(_CATALOGUE.values(), key=lambda m: (order.index(m.promise), m.name)))


def breaks(promise: Promise, *kinds: Kind, **scale: Any) -> Callable[[Plant], Plant]:
    """Take a function into the catalogue, by its name; its docstring says what is wrong.

    Args:
        promise: that it breaks.
        kinds: faults of the simulations that show it; the workers must meet no others.
        scale: what else is other than usual in them.
    """

    def take(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", "-")
        what = " ".join((plant.__doc__ or "").split())
        _CATALOGUE[name] = Mutant(
            name,
            promise,
            what,
            plant,
            replace(Scale(kinds=kinds), **scale),
        )
        return plant

    return take


def does_nothing(*_: Any, **__: Any) -> None:
    """In the place of what has an effect."""
