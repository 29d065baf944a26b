"""What the shards and the crawlers are seen to be able to make of the budget. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from services.coordinator.solver import Curves, Floats
from services.coordinator.usage import Usage

LEAST_SHARE: Final = 0.01
"""Part of the budget that all shards which use nothing have together, to show if they can again."""

LEAST_HELD: Final = 0.01
"""A smaller part of the slots that wait for the crawlers is none: their answers come in bursts."""

LEAST_UNUSED: Final = 0.01
"""A smaller part of the slots for which a shard has no page is none."""

BELIEVED: Final = 2.0
"""No shard is believed to have made, or left empty, more than so many times the slots that it had:
they are not of quite the same moment as what it says of them."""

ALMOST: Final = 0.995
"""Part of what shards can make at most for which there is one λ₀: below it, they all have pages for
more than they can make."""


@dataclass(frozen=True, slots=True)
class Crawlers:
    """How the crawler fleet keeps up."""

    answers: float
    """Per second of the wall, of late."""
    held_share: float
    """Of the slots that pages are worth, those that wait because the crawlers are behind; 0: they
    keep up, and may be able to do more."""


def crawlers_of(usages: Collection[Usage]) -> Crawlers:
    """What the crawlers are seen to do, by what shards of late made of their slots."""
    held = sum(min(usage.held_rate, BELIEVED * usage.slots_rate) for usage in usages)
    made = sum(min(usage.crawls_rate, BELIEVED * usage.slots_rate) for usage in usages)
    asked = held + made
    # Of all slots, too: where no page is worth λ₀ nothing is asked for, and what once waited
    # would be the whole of it until it is forgotten to the last bit.
    slots = sum(usage.slots_rate for usage in usages)
    is_some = held > LEAST_HELD * max(asked, slots)
    answers = sum(usage.answered_rate for usage in usages)
    return Crawlers(answers, held / asked if is_some else 0.0)


def limits(usages: Mapping[int, Usage], planning: float, speed: float) -> dict[int, float]:
    """The most that each shard is given of which that is known, crawls per second of the clock.

    Args:
        usages: of shards.
        planning: R that is shared out.
        speed: clock seconds in one of the wall.
    """
    found = {n: of.limit / speed for n, of in usages.items() if math.isfinite(of.usable)}
    least = LEAST_SHARE * planning / max(len(found), 1)
    return {number: max(limit, least) for number, limit in found.items()}


def most_made(
    curves: Curves, usages: Mapping[int, Usage], most: Floats, *, work_conserving: bool
) -> float:
    """What the shards can make together, crawls per second of the clock; infinite: more than
    anybody has seen.

    Where the budget is more than that, the rest is lost: λ₀ is that of what is made, and not 0, as
    if slots were free. They are free where a shard has no page for some of them, so who does not
    fill its slots for this reason could make more. But where slots are left empty that no page is
    worth λ₀ (not `work_conserving`), that is no sign of it.

    Args:
        curves: of the shards that are there.
        usages: of these shards, and maybe others.
        most: the limit of each shard of the curves, infinite where none is known.
        work_conserving: see `Fleet`.
    """
    able = [
        math.inf if work_conserving and _is_out_of_pages(usages[number]) else limit
        for number, pages, limit in zip(curves.shards, curves.pages, most.tolist(), strict=True)
        if pages > 0
    ]
    return ALMOST * sum(able) if able else math.inf


def _is_out_of_pages(usage: Usage) -> bool:
    return usage.unused_rate > LEAST_UNUSED * usage.slots_rate
