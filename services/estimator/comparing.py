"""Counting what was predicted of crawls, and what they found."""

from typing import Final

import numpy as np

from services.estimator import metrics
from shared.policy.calibration import TENTHS, chance_of, tenth_of
from shared.store.writer import Observations

_PREDICTED: Final = [metrics.PREDICTED_CHANGES.labels(tenth) for tenth in range(TENTHS)]
_FOUND: Final = [metrics.FOUND_CHANGES.labels(tenth) for tenth in range(TENTHS)]


def count_predictions(found: Observations) -> None:
    """Count observations that are durable, by the tenth of the chance that they were given."""
    chances = chance_of(found.staleness)
    tenths = tenth_of(chances)
    predicted = np.bincount(tenths, chances, TENTHS).tolist()
    changed = np.bincount(tenths, found.changed, TENTHS).tolist()
    for tenth in np.unique(tenths).tolist():
        _PREDICTED[tenth].inc(predicted[tenth])
        _FOUND[tenth].inc(changed[tenth])
