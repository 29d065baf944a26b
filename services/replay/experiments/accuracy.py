"""[N] figures 2, 3, 4, 5, 8 and 9: how often requests find a fresh copy.

Accuracy is importance-weighted, time-averaged freshness: what the share of requests that find a
fresh copy tends to, without the noise of drawing the requests.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from services.replay.books import settle
from services.replay.by_value import ValuePolicy, run_by_value
from services.replay.experiments.results import Figure, Scale, Series, Told, summarised
from services.replay.generated import PaperPopulation, heavy_tailed, make_trace
from services.replay.policies import POLICIES, replay_policy
from services.replay.slots import Budget
from services.replay.trace import Trace
from shared.policy.approximations import TRUSTED_PRECISION, TRUSTED_RECALL
from shared.policy.lambdacrawl.continuous import continuous_freshness, optimal_continuous_rates
from shared.policy.model import PageParameters

BANDWIDTH = 100.0
DAYS = 1000.0
SIZES = (100, 200, 500, 750, 1000)
DELAY_SLOTS = 6.0
"""Mean of the Poisson delays of figure 8, in slots of the budget."""

NOISY_POLICIES = ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS", "G-NCIS-APPROX-1", "G-NCIS-APPROX-2")

BASELINE = "Baseline"

REFERENCE_SIZES = (100, 200, 500, 1000)
REFERENCE = {
    "GREEDY": (0.831, 0.711, 0.512, 0.369),
    "GREEDY-CIS": (0.905, 0.745, 0.443, 0.274),
    "GREEDY-NCIS": (0.911, 0.786, 0.548, 0.388),
    "G-NCIS-APPROX-1": (0.911, 0.783, 0.534, 0.367),
    "G-NCIS-APPROX-2": (0.911, 0.786, 0.545, 0.383),
    BASELINE: (0.831, 0.711, 0.511, 0.368),
}
"""Section 6.6 by an independent replication, against `REFERENCE_SIZES` pages."""


def compared(figure: Figure) -> list[dict[str, Any]]:
    """Figure 4 beside the independent replication.

    `deviation` is in our standard errors alone: of how many populations the replication is the
    mean, and with what error, it does not say.
    """
    rows = []
    for line in figure.series:
        for pages, reference in zip(REFERENCE_SIZES, REFERENCE[line.label], strict=True):
            if pages not in line.x:
                continue
            place = line.x.index(pages)
            mean, error = line.mean[place], line.standard_error[place]
            deviation = (mean - reference) / error if error > 0 else np.nan
            rows.append(
                {
                    "policy": line.label,
                    "pages": pages,
                    "accuracy": round(mean, 4),
                    "standard_error": round(error, 4),
                    "replication": reference,
                    "deviation": round(float(deviation), 2),
                }
            )
    return rows


def accuracy(trace: Trace, name: str, bandwidth: float = BANDWIDTH) -> float:
    """Freshness of a policy that knows the parameters."""
    replayed = replay_policy(trace, Budget.constant(bandwidth), name, oracle=True)
    return 1.0 - replayed.books.staleness


def baseline(parameters: PageParameters, bandwidth: float = BANDWIDTH) -> float:
    """Freshness of the optimal continuous policy without signals."""
    rates = optimal_continuous_rates(parameters.importance, parameters.change_rate, bandwidth)
    fresh = continuous_freshness(parameters.importance, parameters.change_rate, rates.rates)
    return float(fresh.sum() / parameters.importance.sum())


def _against_size(
    figure: Figure,
    population: Callable[[int], PaperPopulation],
    policies: Sequence[str],
    scale: Scale,
    sizes: Sequence[int],
    told: Told,
) -> Figure:
    """Fill a figure with the accuracy of policies, and of Baseline, against the number of pages."""
    names = [*policies, BASELINE]
    found = np.empty((len(names), scale.repetitions, len(sizes)))
    for column, pages in enumerate(sizes):
        for repetition in range(scale.repetitions):
            rng = scale.rng(repetition, pages)
            parameters = population(pages).parameters(rng)
            trace = make_trace(parameters, DAYS, rng)
            for row, name in enumerate(policies):
                found[row, repetition, column] = accuracy(trace, name)
            found[-1, repetition, column] = baseline(parameters)
            told((column + (repetition + 1) / scale.repetitions) / len(sizes))
    figure.series.extend(
        summarised(name, list(sizes), values) for name, values in zip(names, found, strict=True)
    )
    return figure


def _size_figure(name: str, title: str) -> Figure:
    return Figure(name, title, "pages", "accuracy", "lines", [])


def figure_2(scale: Scale, told: Told, sizes: Sequence[int] = SIZES) -> Figure:
    """Discrete policies without signals: GREEDY and LDS against the continuous optimum."""
    figure = _size_figure("n2", "[N] figure 2: discrete policies without signals")
    return _against_size(
        figure, lambda m: PaperPopulation(m, None), ("GREEDY", "LDS"), scale, sizes, told
    )


def figure_3(scale: Scale, told: Told, sizes: Sequence[int] = SIZES) -> Figure:
    """Signals that are never false, for a part of changes."""
    figure = _size_figure("n3", "[N] figure 3: partially observable changes")
    return _against_size(
        figure,
        lambda m: PaperPopulation(m, false_signals=(0.0, 0.0)),
        ("GREEDY", "GREEDY-CIS"),
        scale,
        sizes,
        told,
    )


def figure_4(scale: Scale, told: Told, sizes: Sequence[int] = SIZES) -> Figure:
    """Section 6.6: false signals too, at rates that the policies know."""
    figure = _size_figure("n4", "[N] figure 4: noisy signals")
    return _against_size(figure, PaperPopulation, NOISY_POLICIES, scale, sizes, told)


def figure_5(scale: Scale, told: Told, shares: Sequence[float] = (0.0, 0.1, 0.2)) -> Figure:
    """Precision and recall that the policies know wrongly: p of each is uniform noise.

    Importance and change rates, which are known, have the published shape of [K]'s dataset; 5 % of
    pages have the best signals, the others poor ones ([N] section 6.7; figure 1 for their
    distribution). A slot for each twentieth of pages a day, 200 days.
    """
    policies = ("GREEDY", "GREEDY-CIS+", "GREEDY-NCIS")
    found = np.empty((len(policies), scale.repetitions, len(shares)))
    slots = Budget.constant(scale.pages / 20).slot_times(200.0)
    for repetition in range(scale.repetitions):
        rng = scale.rng(repetition, 5)
        shape = heavy_tailed(scale.pages, 0.05, rng)
        good = shape.recall > 0.5
        precision = np.where(good, rng.uniform(0.7, 0.95, good.size), rng.beta(1.0, 4.0, good.size))
        recall = np.where(good, rng.uniform(0.6, 0.95, good.size), rng.beta(1.2, 3.0, good.size))
        truth = _with_quality(shape, np.maximum(precision, 0.01), recall)
        trace = make_trace(truth, 200.0, rng)
        for column, share in enumerate(shares):
            noise = rng.random((2, good.size))
            precision = (1 - share) * truth.precision + share * noise[0]
            recall = (1 - share) * truth.recall + share * noise[1]
            believed = (
                truth,
                _believed_or_ignored(truth, precision, recall),
                _believed(truth, precision, recall),
            )
            for row, name in enumerate(policies):
                found[row, repetition, column] = _accuracy_believing(
                    trace, slots, name, believed[row]
                )
        told((repetition + 1) / scale.repetitions)
    series = [
        summarised(name, list(shares), values) for name, values in zip(policies, found, strict=True)
    ]
    notes = f"{scale.pages} pages of a generated population with the published shape"
    title = "[N] figure 5: corrupted precision and recall"
    return Figure("n5", title, "share of noise", "accuracy", "lines", series, notes)


def _with_quality(
    shape: PageParameters, precision: np.ndarray, recall: np.ndarray
) -> PageParameters:
    """Pages whose signals have this precision and recall."""
    false_signals = recall * shape.change_rate * (1 - precision) / precision
    return PageParameters.from_rates(shape.importance, shape.change_rate, recall, false_signals)


def _believed(truth: PageParameters, precision: np.ndarray, recall: np.ndarray) -> PageParameters:
    """The pages as GREEDY-NCIS takes them; their rate of signals is observed rightly.

    Believed recall has α = (1 − λ)Δ, believed precision κ; the text does not say which of λ, p, Δ
    and γ gives way when they contradict one another.
    """
    return PageParameters.from_columns(
        truth.importance,
        truth.change_rate * (1 - np.minimum(recall, 1.0)),
        -np.log1p(-np.minimum(precision, 1 - 1e-9)),
        truth.gamma,
    )


def _believed_or_ignored(
    truth: PageParameters, precision: np.ndarray, recall: np.ndarray
) -> PageParameters:
    """The pages as GREEDY-CIS+ takes them: those of high precision and recall by GREEDY-CIS, with
    signals at the rate λΔ that are all true, and all others by GREEDY; at the known Δ."""
    is_trusted = (precision > TRUSTED_PRECISION) & (recall > TRUSTED_RECALL)
    told = np.where(is_trusted, recall, 0.0)
    return PageParameters.from_rates(truth.importance, truth.change_rate, told, 0.0)


def _accuracy_believing(
    trace: Trace, slots: np.ndarray, name: str, believed: PageParameters
) -> float:
    policy = POLICIES[name]
    if not isinstance(policy, ValuePolicy):
        raise TypeError(f"{name} does not crawl by value")
    crawled = run_by_value(trace, slots, policy, believed).crawled
    return 1.0 - settle(trace, slots, crawled).staleness


def figure_8(scale: Scale, told: Told, sizes: Sequence[int] = SIZES) -> Figure:
    """Delayed signals: GREEDY-NCIS with and without, and GREEDY-NCIS-D that discards early ones.

    Delays are Poisson of mean 6, in slots of the budget (the text does not say in what).
    """
    labels = ("GREEDY-NCIS", "GREEDY-NCIS-D", "GREEDY-NCIS without delay", BASELINE)
    found = np.empty((len(labels), scale.repetitions, len(sizes)))
    for column, pages in enumerate(sizes):
        for repetition in range(scale.repetitions):
            rng = scale.rng(repetition, pages, 8)
            parameters = PaperPopulation(pages).parameters(rng)
            prompt = make_trace(parameters, DAYS, scale.rng(repetition, pages, 80))

            def delays(count: int, rng: np.random.Generator = rng) -> np.ndarray:
                return rng.poisson(DELAY_SLOTS, count) / BANDWIDTH

            late = make_trace(parameters, DAYS, scale.rng(repetition, pages, 80), delays)
            found[:, repetition, column] = (
                accuracy(late, "GREEDY-NCIS"),
                accuracy(late, "GREEDY-NCIS-D"),
                accuracy(prompt, "GREEDY-NCIS"),
                baseline(parameters),
            )
            told((column + (repetition + 1) / scale.repetitions) / len(sizes))
    series = [
        summarised(label, list(sizes), values) for label, values in zip(labels, found, strict=True)
    ]
    return Figure("n8", "[N] figure 8: delayed signals", "pages", "accuracy", "lines", series)


def figure_9(scale: Scale, told: Told, pages: int = 1000, days: float = 400.0) -> Figure:
    """GREEDY while the budget goes from 100 to 150 and back, against either throughout."""
    third = days / 3
    budgets = {
        "100, 150, 100": Budget(((0.0, 100.0), (third, 150.0), (2 * third, 100.0))),
        "100 throughout": Budget.constant(100.0),
        "150 throughout": Budget.constant(150.0),
    }
    found: dict[str, list[np.ndarray]] = {label: [] for label in budgets}
    ends: list[float] = []
    for repetition in range(scale.repetitions):
        rng = scale.rng(repetition, 9)
        trace = make_trace(PaperPopulation(pages, None).parameters(rng), days, rng)
        for label, budget in budgets.items():
            books = replay_policy(trace, budget, "GREEDY", oracle=True).books
            found[label].append(books.series_freshness)
            ends = books.series_days.tolist()
        told((repetition + 1) / scale.repetitions)
    series: list[Series] = [summarised(label, ends, values) for label, values in found.items()]
    title = "[N] figure 9: the budget changes"
    return Figure("n9", title, "days", "accuracy", "lines", series)
