"""Counting what became of events, for the metrics."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.estimator import effects, metrics
from shared.rules.page_events import SIGNAL

_VERDICT_NAMES: Final = {
    effects.UNKNOWN_PAGE: "unknown_page",
    effects.APPLIED: "applied",
    effects.OBSERVED: "observed",
    effects.STALE: "stale",
    effects.NOT_COUNTED: "not_counted",
    effects.RETURNED: "applied",
}


def count_events(kinds: NDArray[np.int8], verdicts: NDArray[np.uint8]) -> None:
    """Count signals and outcomes, by their kinds."""
    is_signal = kinds == SIGNAL
    count_verdicts("signal", verdicts[is_signal])
    count_verdicts("outcome", verdicts[~is_signal])


def count_verdicts(kind: str, verdicts: NDArray[np.uint8]) -> None:
    """Count verdicts on events of one kind."""
    for verdict, count in enumerate(np.bincount(verdicts)):
        if count:
            metrics.EVENTS.labels(kind, _VERDICT_NAMES[verdict]).inc(int(count))
