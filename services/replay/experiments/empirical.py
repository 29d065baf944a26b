"""[N] figures 7 and 14: how often pages are crawled, against the continuous optimum."""

from collections.abc import Sequence

from services.replay.experiments.results import Figure, Scale, Series, Told
from services.replay.generated import PaperPopulation, make_trace
from services.replay.policies import replay_policy
from services.replay.slots import Budget
from shared.policy.lambdacrawl.continuous import optimal_continuous_rates

BANDWIDTH = 100.0
DAYS = 1000.0


def _rates(
    figure: Figure,
    policies: Sequence[str],
    signals: bool,
    pages: Sequence[int],
    scale: Scale,
    told: Told,
) -> Figure:
    for number, size in enumerate(pages):
        optimal: list[float] = []
        crawled: dict[str, list[float]] = {name: [] for name in policies}
        for repetition in range(scale.repetitions):
            rng = scale.rng(repetition, size, 14 if signals else 7)
            population = PaperPopulation(size) if signals else PaperPopulation(size, None)
            parameters = population.parameters(rng)
            trace = make_trace(parameters, DAYS, rng)
            optimal += optimal_continuous_rates(
                parameters.importance, parameters.change_rate, BANDWIDTH
            ).rates.tolist()
            for name in policies:
                replayed = replay_policy(trace, Budget.constant(BANDWIDTH), name, oracle=True)
                crawled[name] += (replayed.books.crawls / DAYS).tolist()
            told((number + (repetition + 1) / scale.repetitions) / len(pages))
        figure.series.extend(
            Series(f"{name}, {size} pages", optimal, crawled[name]) for name in policies
        )
    return figure


def _figure(name: str, title: str) -> Figure:
    labels = ("optimal rate (crawls a day)", "empirical rate (crawls a day)")
    return Figure(name, title, *labels, "points", [])


def figure_7(scale: Scale, told: Told, pages: Sequence[int] = (100, 500)) -> Figure:
    """GREEDY and LDS without signals: LDS keeps to the rates, GREEDY only to their sum."""
    figure = _figure("n7", "[N] figure 7: empirical rates without signals")
    return _rates(figure, ("GREEDY", "LDS"), False, pages, scale, told)


def figure_14(scale: Scale, told: Told, pages: Sequence[int] = (100, 500)) -> Figure:
    """Noisy signals: GREEDY-CIS overcrawls pages with false signals, GREEDY-NCIS does not."""
    figure = _figure("n14", "[N] figure 14: empirical rates with noisy signals")
    return _rates(figure, ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS"), True, pages, scale, told)
