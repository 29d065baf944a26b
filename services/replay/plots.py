"""Pictures of replays; drawn without a screen."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from services.replay.trace import trace_parameters

if TYPE_CHECKING:
    from services.replay.replay import Comparison

PICTURES = (".svg", ".png")

RATE_BINS = 24


def check_picture(file: Path) -> None:
    """Raises ValueError unless a picture can be written there."""
    if file.suffix not in PICTURES:
        raise ValueError(f"{file}: a picture ends in {' or '.join(PICTURES)}")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"{file}: there is no folder {file.absolute().parent}")


def new_figure(columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """(figure, axes (rows, columns)) that needs no screen and leaves no state behind."""
    figure = Figure(figsize=(6.0 * columns, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, file: Path) -> None:
    """Write a picture; the same figure gives the same bytes."""
    metadata = {"Date": None} if file.suffix == ".svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "freshet"}):
        figure.savefig(file, metadata=metadata, dpi=150)


def draw_comparison(found: "Comparison", file: Path) -> None:
    """Freshness over time, and crawls a day against the change rate, of every policy."""
    figure, axes = new_figure(columns=2)
    over_time, against_rate = axes[0]
    rates = trace_parameters(found.trace).change_rate
    for name, replayed in found.policies.items():
        books = replayed.books
        over_time.plot(books.series_days, books.series_freshness, label=name, linewidth=1.2)
        centres, crawls = binned(rates, books.crawls / np.maximum(books.known_days, 1e-9))
        against_rate.plot(centres, crawls, marker=".", label=name, linewidth=1.0)
    over_time.set(xlabel="days", ylabel="freshness (importance-weighted)")
    against_rate.set(xlabel="changes a day of a page", ylabel="crawls a day of a page")
    against_rate.set_xscale("log")
    against_rate.set_yscale("symlog", linthresh=1e-3)
    against_rate.set_ylim(bottom=0.0)
    over_time.legend(fontsize="small")
    save(figure, file)


def binned(
    rates: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(rate, mean of `values`) in logarithmic bins of the rates; empty bins are left out."""
    positive = rates > 0
    if not positive.any():
        return np.empty(0), np.empty(0)
    logs, kept = np.log10(rates[positive]), values[positive]
    edges = np.linspace(logs.min(), logs.max() + 1e-9, RATE_BINS + 1)
    bins = np.clip(np.digitize(logs, edges) - 1, 0, RATE_BINS - 1)
    counts = np.bincount(bins, minlength=RATE_BINS)
    filled = counts > 0
    means = np.bincount(bins, kept, RATE_BINS)[filled] / counts[filled]
    return 10.0 ** (0.5 * (edges[:-1] + edges[1:]))[filled], means
