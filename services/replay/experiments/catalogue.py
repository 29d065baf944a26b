"""All figures by name."""

from collections.abc import Callable

from services.replay.experiments import (
    accuracy,
    any_rate,
    empirical,
    estimator_study,
    estimators,
    harmonic,
    lambda_crawl,
    wide_rates,
)
from services.replay.experiments.results import Figure, Scale, Told

FIGURES: dict[str, Callable[[Scale, Told], Figure]] = {
    "n2": accuracy.figure_2,
    "n3": accuracy.figure_3,
    "n4": accuracy.figure_4,
    "n5": accuracy.figure_5,
    "n7": empirical.figure_7,
    "n8": accuracy.figure_8,
    "n9": accuracy.figure_9,
    "n10": estimators.figure_10,
    "n11": estimators.figure_11,
    "n14": empirical.figure_14,
    "k1": lambda_crawl.figure_1,
    "k2": lambda_crawl.figure_2,
    "k3": lambda_crawl.figure_3,
    "harmonic": harmonic.harmonic_figure,
    "estimator-size": estimator_study.against_size,
    "estimator-cold-start": estimator_study.cold_start,
    "estimator-drift": estimator_study.drift,
    "estimator-any-rate": any_rate.any_rate,
    "estimator-wide-rates": wide_rates.wide_rates,
}
"""Name → (scale, told) → figure; n: [N], k: [K]."""


def figure_names(chosen: tuple[str, ...]) -> list[str]:
    """The figures named, all of them if none is; `estimator` stands for the whole study.

    Raises:
        ValueError: one of them does not exist.
    """
    found: list[str] = []
    for name in chosen or tuple(FIGURES):
        members = [known for known in FIGURES if known == name or known.startswith(f"{name}-")]
        if not members:
            raise ValueError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
        found += [member for member in members if member not in found]
    return found
