"""From when on a lower budget must hold, where the machine kept the broker from having it in time.

A plan that the broker has too late holds for nobody: the coordinator decides again, further ahead.
Until then the higher budget of before goes on, which is what was promised. Who was late is judged
by the broker's times, not by the coordinator's.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from services.verify.checks.downtime import Downtimes, down_within
from services.verify.ledger import Ledger
from services.verify.records import decoded
from services.world.budget import SETTLE_SECONDS
from shared.contracts.messages import Multipliers
from shared.contracts.topics import MULTIPLIERS
from shared.runtime.kafka import appended_at

AGAIN_SECONDS: Final = 1.5
"""Deciding again and the longer way ahead take so much longer."""

Changes = Sequence[tuple[float, float]]
"""When the budget was set (Unix seconds), and to how many crawls per second."""


def changes_held(changes: Changes, ledger: Ledger, slow: Downtimes) -> Changes:
    """The changes of the budget, with each decrease as late as it may be.

    Args:
        changes: as they were made known.
        ledger: of the run.
        slow: periods in which the verification's own messages took long: so did the coordinator's.
    """
    late = [
        at
        for record, plan in decoded(Multipliers, ledger.raw[MULTIPLIERS.name])
        if (at := appended_at(record)) and plan.append_by is not None and at > plan.append_by
    ]
    held = [changes[0]]
    for (_, before), (at, rate) in itertools.pairwise(changes):
        if rate < before:
            settled = at + SETTLE_SECONDS
            excused = down_within(slow, at, settled)
            excused += AGAIN_SECONDS * any(at <= one <= settled for one in late)
            held.append((max(held[-1][0], at + excused), rate))
            continue
        while held[-1][0] > at:
            held.pop()  # it would have come after this one
        held.append((at, rate))
    return held
