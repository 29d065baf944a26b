"""Pictures of experiments: lines and bars with error bars, and clouds of points."""

from pathlib import Path
from typing import Any

import numpy as np

from services.replay.experiments.results import Figure
from services.replay.plots import new_figure, save


def draw(figure: Figure, file: Path) -> None:
    """Write `figure` as SVG or PNG, by the file's ending."""
    picture, axes = new_figure()
    {"lines": _lines, "bars": _bars, "points": _points}[figure.kind](figure, axes[0, 0])
    axes[0, 0].set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
    axes[0, 0].legend(fontsize="small")
    save(picture, file)


def _lines(figure: Figure, axes: Any) -> None:
    for line in figure.series:
        axes.errorbar(
            line.x, line.mean, line.standard_error, label=line.label, marker=".", capsize=2
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


def _points(figure: Figure, axes: Any) -> None:
    highest = 0.0
    for line in figure.series:
        axes.scatter(line.x, line.mean, s=4, label=line.label)
        highest = max(highest, *line.x)
    axes.plot([0.0, highest], [0.0, highest], color="black", linewidth=0.6)
