"""The pictures of the tour (``README.md`` beside this file), each drawn by one pure function.

``python -m shared.policy.tour DIR`` writes them all; the same code writes the same bytes.
"""

import argparse
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from shared.policy.approximations import g_ncis_approximation
from shared.policy.demand import demand_curve, log_grid
from shared.policy.estimation.bursts import (
    AGE_BINS,
    age_bin,
    burst_multipliers,
    initial_bursts,
    update_bursts,
)
from shared.policy.estimation.host_priors import HostPriors
from shared.policy.estimation.map_fit import fit_histories_map
from shared.policy.harmonic import harmonic_penalty, harmonic_value
from shared.policy.inverse import threshold_time
from shared.policy.lambdacrawl.binary import (
    binary_lambda_crawl,
    binary_lambda_crawl_with_floor,
)
from shared.policy.lambdacrawl.harmonic import (
    CrawlRates,
    lambda_crawl_approximate,
    lambda_crawl_incomplete,
)
from shared.policy.model import Column, PageParameters
from shared.policy.multipliers import solve_exact, solve_multiplier
from shared.policy.value import crawl_value, freshness, intervals

_COLOURS = ("#0b3c5d", "#d1495b", "#2e933c", "#edae49", "#7768ae", "#5c677d")
"""Told apart by most colour-blind readers, and in this order by their lightness."""

_STYLE: dict[Any, object] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.labelsize": 8.5,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "freshet",
}

_LONG_NUMBER = re.compile(rb"(?<=[ML ])-?\d+\.\d{3,}(?= )")
"""A coordinate with more digits than a picture has: they differ between machines."""


def crawl_value_picture() -> Figure:
    """V against the time since the last crawl, for 0 to 3 signals, at six qualities of signals.

    One change a day and importance 1 throughout, so every curve ends at μ/Δ = 1.
    """
    figure = _figure(7.6, 4.6)
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    days = np.linspace(0.0, 6.0, 41)
    for row, recall in enumerate((0.4, 0.9)):
        for column, precision in enumerate((0.2, 0.6, 0.95)):
            axes = panels[row, column]
            page = _page(precision, recall)
            for signals in range(4):
                axes.plot(
                    days,
                    crawl_value(1.0, page.alpha, page.kappa, page.gamma, days, signals),
                    color=_COLOURS[signals],
                    label=f"n = {signals}",
                )
            axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1)
            axes.set_title(f"precision {precision}, recall {recall}")
    figure.supxlabel("days since the last crawl, t")
    figure.supylabel("crawl value V(t, n)")
    panels[0, 0].set_yticks((0.0, 0.5, 1.0))
    panels[0, 0].legend(loc="lower right")
    return figure


def approximation_picture() -> Figure:
    """The exact V against its first 1, 2 and 3 terms along the equivalent time ι."""
    figure = _figure(7.6, 3.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, precision in zip(panels, (0.7, 0.2), strict=True):
        page = _page(precision, 0.5)
        iota = np.linspace(0.0, 10.0, 101)
        columns = (1.0, page.alpha, page.kappa, page.gamma, iota, 0.0)
        axes.plot(iota, crawl_value(*columns), color=_COLOURS[0], linewidth=2, label="exact")
        for terms in (3, 2, 1):
            axes.plot(
                iota,
                g_ncis_approximation(*columns, terms=terms),
                color=_COLOURS[terms],
                linestyle="--",
                label=f"{terms} term{'s' if terms > 1 else ''}",
            )
        axes.axhline(1.0, color="0.4", linestyle=":", linewidth=1, label="μ/Δ")
        axes.set_title(f"precision {precision}, recall 0.5: β = {page.beta[0]:.2f} days")
        axes.set_xlabel("equivalent days ι = t + βn")
    panels[0].set_ylabel("crawl value")
    panels[0].legend(loc="lower right")
    return figure


def noise_picture() -> Figure:
    """The share of time that a page is fresh, against its crawls per day, by precision."""
    figure = _figure(5.2, 3.4)
    axes = figure.subplots()
    for colour, precision in zip(_COLOURS, (1.0, 0.95, 0.7, 0.3, 0.0), strict=False):
        page = _page(precision, 0.8) if precision > 0 else _page(1.0, 0.0)
        psi, fresh = intervals(
            page.alpha, page.kappa, page.gamma, np.geomspace(0.15, 200.0, 160), 0.0
        )
        rate, share = 1.0 / psi, fresh / psi
        if precision == 1.0:
            # Fewer crawls than true signals: an even share of the signals is left out.
            rate, share = np.append(rate, 0.0), np.append(share, 0.0)
        name = {1.0: "precision 1: no false signal", 0.0: "no signals"}
        axes.plot(rate, share, color=colour, label=name.get(precision, f"precision {precision}"))
    axes.set(xlim=(0, 4), ylim=(0, 1), xlabel="crawls per day", ylabel="share of time fresh")
    axes.set_title("one change a day, recall 0.8")
    axes.legend(loc="lower right")
    return figure


def threshold_picture() -> Figure:
    """Where pages of different change rates reach one threshold, and the demand it makes."""
    figure = _figure(7.6, 3.4)
    left, right = figure.subplots(1, 2)
    _draw_thresholds(left)
    _draw_demand(right)
    return figure


def posterior_picture() -> Figure:
    """The belief about a page's α from its host's prior through 32 crawls."""
    true_rate, priors = 0.5, HostPriors(np.array([1.2]), np.array([12.0]), np.array([[0.5]]))
    generator = np.random.default_rng(4)
    days = generator.exponential(1.5, 32)
    changed = (generator.random(32) < -np.expm1(-true_rate * days)).astype(np.uint8)
    figure = _figure(5.2, 3.4)
    axes = figure.subplots()
    rates = np.geomspace(0.004, 3.0, 160)
    for colour, crawls in zip(_COLOURS, (0, 1, 2, 8, 32), strict=False):
        fit = fit_histories_map(
            days[:crawls],
            np.zeros(crawls),
            changed[:crawls],
            [0, crawls],
            np.array([0]),
            priors,
        )
        shape, rate = float(fit.posterior_shape[0]), float(fit.unsignalled_change_rate[0])
        density = rates * stats.gamma.pdf(rates, shape, scale=rate / shape)
        found = int(changed[:crawls].sum())
        label = "the host's prior" if crawls == 0 else f"{crawls} crawls, {found} changed"
        axes.plot(rates, density, color=colour, label=label.replace("1 crawls", "1 crawl"))
    axes.axvline(true_rate, color="0.4", linestyle=":", linewidth=1)
    axes.annotate("true α", (true_rate, 1.5), xytext=(4, 0), textcoords="offset points")
    axes.set(xscale="log", xlabel="α, changes per day", ylabel="density of ln α")
    axes.legend(loc="upper left")
    return figure


def burst_picture() -> Figure:
    """Burst multipliers that two hosts learn: changes in bursts, and changes at random."""
    figure = _figure(5.6, 3.2)
    axes = figure.subplots()
    bins = np.arange(AGE_BINS)
    for offset, bursty in ((-0.19, True), (0.19, False)):
        axes.bar(
            bins + offset,
            _learned_multipliers(bursty) - 1.0,
            0.36,
            bottom=1.0,
            color=_COLOURS[0 if bursty else 3],
            label="changes in bursts" if bursty else "changes at random",
        )
    names = ("never\nchanged", "just\nchanged", "< 7\ndays", "< 30\ndays", "< 120\ndays", "longer")
    axes.set_xticks(bins, names)
    axes.axhline(1.0, color="0.4", linewidth=1)
    axes.set(yscale="log", ylim=(0.08, 12.0), ylabel="multiplier M of α")
    axes.set_xlabel("age of the last observed change at the last crawl")
    axes.legend(loc="upper right")
    return figure


def crawl_rate_picture() -> Figure:
    """Crawl rates against change rates under LC, LCA, BLC and BLCε, at equal importance."""
    changes = np.geomspace(0.01, 30.0, 161)
    importance = np.ones(changes.size)
    budget = 0.5 * changes.size
    policies: tuple[tuple[str, CrawlRates], ...] = (
        ("LC: least harmonic cost", lambda_crawl_incomplete(importance, changes, budget)),
        ("LCA: by importance", lambda_crawl_approximate(importance, changes, None, budget)),
        ("BLC: least binary cost", binary_lambda_crawl(importance, changes, budget)),
        ("BLCε: with a floor", binary_lambda_crawl_with_floor(importance, changes, budget)),
    )
    figure = _figure(5.6, 3.6)
    axes = figure.subplots()
    for colour, (name, policy) in zip(_COLOURS, policies, strict=False):
        crawled = np.where(policy.rates > 0, policy.rates, np.nan)
        axes.plot(changes, crawled, color=colour, label=name)
    starved = float(changes[policies[2][1].rates == 0].min())
    axes.axvspan(starved, changes[-1], color=_COLOURS[2], alpha=0.1, linewidth=0)
    axes.text(starved * 1.1, 1.9, "BLC starves\nthese pages", color=_COLOURS[2], va="top")
    axes.set(xscale="log", yscale="log", ylim=(0.03, 2.2))
    axes.set(xlabel="changes per day, Δ", ylabel="crawls per day, ρ")
    axes.legend(loc="lower left")
    return figure


def objective_picture() -> Figure:
    """Penalty and crawl value without signals, for the freshness and the harmonic objective."""
    figure = _figure(7.6, 3.2)
    left, right = figure.subplots(1, 2)
    staleness = np.linspace(0.0, 8.0, 81)
    stale = 1.0 - freshness(1.0, staleness, 0.0)
    left.plot(staleness, stale, color=_COLOURS[0], label="freshness: 1 − e⁻ˢ")
    harmonic = harmonic_penalty(1.0, 0.0, staleness, 0.0)
    left.plot(staleness, harmonic, color=_COLOURS[1], linestyle="--", label="harmonic: Ein(s)")
    left.set(xlabel="staleness exponent s", ylabel="expected penalty c(s)")
    left.legend(loc="upper left")
    days = np.linspace(0.0, 6.0, 81)
    for colour, change_rate in zip(_COLOURS[2:], (0.3, 1.0, 3.0), strict=False):
        columns = (1.0, change_rate, 0.0, 0.0, days, 0.0)
        right.plot(days, crawl_value(*columns), color=colour, label=f"Δ = {change_rate} a day")
        right.plot(days, harmonic_value(*columns), color=colour, linestyle="--")
    right.set(xlabel="days since the last crawl", ylabel="crawl value", ylim=(0, 4))
    right.set_title("solid: freshness, dashed: harmonic")
    right.legend(loc="upper left")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "crawl-value.svg": crawl_value_picture,
    "approximations.svg": approximation_picture,
    "noise.svg": noise_picture,
    "threshold.svg": threshold_picture,
    "posterior.svg": posterior_picture,
    "bursts.svg": burst_picture,
    "crawl-rates.svg": crawl_rate_picture,
    "objectives.svg": objective_picture,
}
"""File names of the tour's pictures, and what draws each."""


def draw(name: str) -> bytes:
    """The SVG file of the picture ``name``, a key of :data:`PICTURES`: always the same bytes."""
    target = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        PICTURES[name]().savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return _LONG_NUMBER.sub(_shortened, target.getvalue())


def main(arguments: Sequence[str] | None = None) -> None:
    """Write every picture to the folder named in ``arguments`` (the command line's by default)."""
    parser = argparse.ArgumentParser(prog="python -m shared.policy.tour", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where to write the SVG files")
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        (folder / name).write_bytes(draw(name))


def _shortened(number: re.Match[bytes]) -> bytes:
    """The coordinate to a hundredth of a point."""
    return b"%.2f" % float(number[0])


def _figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _page(precision: float, recall: float) -> PageParameters:
    """A page of importance 1 that changes once a day, with signals of that quality."""
    return PageParameters.from_rates(1.0, 1.0, recall, recall * (1.0 / precision - 1.0))


def _draw_thresholds(axes: Axes) -> None:
    threshold = 0.3
    days = np.linspace(0.0, 5.0, 81)
    for colour, change_rate in zip(_COLOURS, (0.5, 1.0, 2.0, 5.0), strict=False):
        values = crawl_value(1.0, change_rate, 0.0, 0.0, days, 0.0)
        axes.plot(days, values, color=colour, label=f"Δ = {change_rate} a day")
        due = threshold_time(1.0, change_rate, 0.0, 0.0, threshold)
        axes.plot(due, [threshold], "o", color=colour, markersize=5)
    axes.axhline(threshold, color="0.3", linestyle=":", linewidth=1)
    axes.annotate("Λ", (4.7, threshold), xytext=(0, 3), textcoords="offset points")
    axes.set(xlabel="days since the last crawl", ylabel="crawl value", ylim=(0, 1))
    axes.set_title("due where V reaches Λ; never, if μ/Δ ≤ Λ")
    axes.legend(loc="upper left")


def _draw_demand(axes: Axes) -> None:
    pages, hosts, caps = _small_web()
    budget, grid = 300.0, log_grid(1e-3, 30.0, 81)
    for colour, limits, name in (
        (_COLOURS[0], None, "no limits"),
        (_COLOURS[1], caps, "hosts limited"),
    ):
        demand = demand_curve(pages, hosts, limits, grid)
        axes.plot(grid, demand, color=colour, label=name)
        axes.plot(solve_multiplier(grid, demand, budget), budget, "o", color=colour, markersize=5)
    optimum = solve_exact(pages, hosts, caps, budget)
    axes.axvline(optimum.multiplier, color=_COLOURS[1], linestyle=":", linewidth=1)
    axes.annotate(
        "λ₀", (optimum.multiplier, 14.0), xytext=(-4, 0), textcoords="offset points", ha="right"
    )
    axes.axhline(budget, color="0.3", linestyle=":", linewidth=1)
    axes.annotate("budget R", (1.1e-3, budget), xytext=(0, -10), textcoords="offset points")
    axes.set(xscale="log", yscale="log", ylim=(10, 1e4))
    axes.set(xlabel="threshold Λ", ylabel="crawls per day, D(Λ)")
    axes.set_title("the demand curve gives λ₀")
    axes.legend(loc="upper right")


def _small_web() -> tuple[PageParameters, NDArray[np.int32], Column]:
    """(pages, host of each page, host limits per day): 600 pages, half of them on slow hosts."""
    generator = np.random.default_rng(1)
    change_rate = generator.lognormal(0.0, 1.2, 600)
    recall = generator.beta(2.0, 2.0, 600) * (generator.random(600) < 0.5)
    pages = PageParameters.from_rates(
        generator.lognormal(0.0, 1.0, 600), change_rate, recall, 0.5 * recall * change_rate
    )
    hosts = generator.integers(0, 20, 600).astype(np.int32)
    return pages, hosts, np.where(np.arange(20) < 10, 8.0, np.inf)


def _learned_multipliers(bursty: bool) -> Column:
    """M of each age bin after 300 crawls, every three days, of each of 200 pages of one host.

    All pages change 0.02 times a day; a bursty one does so 0.16 times a day for about 30 days on
    end, an eighth of the time, and not at all otherwise.
    """
    generator = np.random.default_rng(7)
    expected, predicted = initial_bursts(1)
    for _ in range(200):
        active, since = False, np.inf
        age = age_bin(since)
        for _ in range(300):
            active = generator.random() < (0.9 if active else 0.1 / 7.0)
            rate = (0.16 * active) if bursty else 0.02
            changed = bool(generator.random() < -np.expm1(-3.0 * rate))
            update_bursts(expected, predicted, 0, age, 0.02, 3.0, changed)
            since = 0.0 if changed else since + 3.0
            age = age_bin(since)
    multipliers: Column = burst_multipliers(expected, predicted)[0]
    return multipliers


if __name__ == "__main__":
    main()
