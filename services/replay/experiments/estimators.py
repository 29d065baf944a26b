"""[N] figures 10 and 11: bias and error of naive and maximum-likelihood precision and recall."""

import numpy as np
from numpy.typing import NDArray

from services.replay.experiments.results import Figure, Scale, Series, Told, summarised
from shared.policy.compiled import compiled
from shared.policy.estimation.change_rates import naive_precision_recall
from shared.policy.estimation.smoothed import fit_histories
from shared.policy.model import PageParameters

HORIZON = 100_000.0
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Crawls per change."""

Floats = NDArray[np.float64]


@compiled
def _crawl_history(
    crawl_days: Floats, change_days: Floats, signal_days: Floats
) -> tuple[Floats, Floats, NDArray[np.uint8]]:
    """(intervals, signals, changed) of each crawl, from one page's rising times."""
    size = crawl_days.size
    signals, changed = np.zeros(size), np.zeros(size, np.uint8)
    intervals = np.empty(size)
    change, signal, before = 0, 0, 0.0
    for crawl in range(size):
        now = crawl_days[crawl]
        while change < change_days.size and change_days[change] <= now:
            changed[crawl] = 1
            change += 1
        while signal < signal_days.size and signal_days[signal] <= now:
            signals[crawl] += 1.0
            signal += 1
        intervals[crawl] = now - before
        before = now
    return intervals, signals, changed


def _estimates(
    speed: float, horizon: float, pages: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Errors (estimate − truth) of each page: [N] appendix E."""
    precision, recall = rng.uniform(0.2, 0.95, (2, pages))
    change_rate = 1.0 / rng.uniform(2.0, 20.0, pages)
    parts = []
    for page in range(pages):
        changes = _times(change_rate[page], horizon, rng)
        told = changes[rng.random(changes.size) < recall[page]]
        false_rate = recall[page] * change_rate[page] * (1 / precision[page] - 1)
        signals = np.sort(np.concatenate([told, _times(false_rate, horizon, rng)]))
        crawls = _times(speed * change_rate[page], horizon, rng)
        parts.append(_crawl_history(crawls, changes, signals))
    offsets = np.concatenate([[0], np.cumsum([part[0].size for part in parts])])
    intervals, signal_counts, changed = (
        np.concatenate([part[column] for part in parts]) for column in range(3)
    )
    naive = naive_precision_recall(intervals, signal_counts, changed, offsets)
    fitted = fit_histories(intervals, signal_counts, changed, offsets)
    gamma = np.add.reduceat(signal_counts, offsets[:-1]) / np.add.reduceat(intervals, offsets[:-1])
    learned = PageParameters.from_columns(
        1.0, fitted.unsignalled_change_rate, fitted.signal_evidence, gamma
    )
    return {
        "naive precision": naive.precision - precision,
        "naive recall": naive.recall - recall,
        "likelihood precision": learned.precision - precision,
        "likelihood recall": learned.recall - recall,
    }


def _times(rate: float, horizon: float, rng: np.random.Generator) -> Floats:
    return np.asarray(np.sort(rng.random(rng.poisson(rate * horizon)) * horizon))


def _bias(
    kind: str, figure: Figure, scale: Scale, told: Told, horizon: float, pages: int
) -> Figure:
    errors: dict[str, list[list[float]]] = {}
    for repetition in range(scale.repetitions):
        row: dict[str, list[float]] = {}
        for number, speed in enumerate(SPEEDS):
            rng = scale.rng(repetition, number, 10)
            found = _estimates(speed, horizon, pages, rng)
            for name in (f"{kind} precision", f"{kind} recall"):
                row.setdefault(f"bias of {name}", []).append(float(found[name].mean()))
                row.setdefault(f"absolute error of {name}", []).append(
                    float(np.abs(found[name]).mean())
                )
        for label, values in row.items():
            errors.setdefault(label, []).append(values)
        told((repetition + 1) / scale.repetitions)
    lines: list[Series] = [
        summarised(label, list(SPEEDS), values) for label, values in errors.items()
    ]
    figure.series.extend(lines)
    return figure


def _figure(name: str, title: str) -> Figure:
    return Figure(name, title, "crawls per change", "estimate − truth", "lines", [])


def figure_10(scale: Scale, told: Told, horizon: float = HORIZON, pages: int = 20) -> Figure:
    """Precision and recall counted over crawl intervals: biased upwards when crawls are rare."""
    figure = _figure("n10", "[N] figure 10: naive precision and recall")
    return _bias("naive", figure, scale, told, horizon, pages)


def figure_11(scale: Scale, told: Told, horizon: float = HORIZON, pages: int = 20) -> Figure:
    """The same from the maximum of the likelihood: no bias to speak of."""
    figure = _figure("n11", "[N] figure 11: precision and recall of maximum likelihood")
    return _bias("likelihood", figure, scale, told, horizon, pages)
