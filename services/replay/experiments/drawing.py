"""Pictures of experiments: lines and bars with error bars, and clouds of points."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from services.replay.experiments.results import Figure
from services.replay.plots import new_figure, save

MANY_POINTS = 40
"""Longer lines are drawn without markers."""

MARKERS = "os^Dv*<>"
"""Of lines, so that those upon each other are told apart; the first are the largest."""


def draw(figure: Figure, file: Path) -> None:
    """Write `figure` as SVG or PNG, by the file's ending."""
    if figure.kind == "points":
        picture = _panels(figure)
    else:
        picture, axes = new_figure()
        {"lines": _lines, "bars": _bars}[figure.kind](figure, axes[0, 0])
        axes[0, 0].set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
        axes[0, 0].legend(fontsize="small")
    save(picture, file)


def _lines(figure: Figure, axes: Any) -> None:
    count = len(figure.series)
    for number, line in enumerate(figure.series):
        many = len(line.x) > MANY_POINTS
        axes.errorbar(
            line.x,
            line.mean,
            line.standard_error,
            label=line.label,
            marker="" if many else MARKERS[number % len(MARKERS)],
            markersize=4.0 + 1.5 * (count - 1 - number),
            markerfacecolor="none",
            linewidth=1.0 + 0.6 * (count - 1 - number),
            elinewidth=0.5 if many else 1.0,
            capsize=0 if many else 2,
        )


def _bars(figure: Figure, axes: Any) -> None:
    width = 0.8 / len(figure.series)
    for number, line in enumerate(figure.series):
        heights = np.array(line.mean)
        finite = np.isfinite(heights)
        places = np.arange(heights.size) + (number - 0.5 * (len(figure.series) - 1)) * width
        errors = np.array(line.standard_error)[finite]
        axes.bar(places[finite], heights[finite], width, yerr=errors, label=line.label, capsize=2)
        for place in places[~finite]:
            axes.annotate("∞", (place, 0.0), ha="center", va="bottom")
    axes.set_xticks(range(len(figure.series[0].x)), figure.series[0].x)


def _panels(figure: Figure) -> Any:
    """A panel for each cloud, in two rows of one scale, with the diagonal."""
    columns = math.ceil(len(figure.series) / 2)
    picture, axes = new_figure(columns, 2)
    highest = max(max(*line.x, *line.mean) for line in figure.series)
    for line, panel in zip(figure.series, axes.flat, strict=False):
        panel.scatter(line.x, line.mean, s=4)
        panel.plot([0.0, highest], [0.0, highest], color="black", linewidth=0.6)
        panel.set(title=line.label, xlabel=figure.x_label, ylabel=figure.y_label)
    picture.suptitle(figure.title)
    return picture
