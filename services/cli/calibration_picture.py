"""The picture of `freshet calibration`."""

from pathlib import Path
from typing import Any

from services.replay.plots import new_figure, save


def draw_calibration(answer: dict[str, Any], file: Path) -> None:
    """Draw found against predicted, and freshness, of what `freshet calibration` answers."""
    figure, axes = new_figure(columns=2)
    chances, fresh = axes[0]
    rows = answer["deciles"]
    chances.plot([0, 1], [0, 1], color="grey", linewidth=0.8, label="as predicted")
    chances.errorbar(
        [row["predicted"] for row in rows],
        [row["found"] for row in rows],
        yerr=[2.0 * row["error"] for row in rows],
        marker="o",
        capsize=3,
        linewidth=1.0,
        label="found, ± 2 standard errors",
    )
    chances.set(xlabel="predicted chance of a change", ylabel="share of crawls that found one")
    chances.legend(fontsize="small")
    found, ages = answer["freshness"], answer["by_age"]
    bars = {
        "expected": {"value": found["expected"], "error": 0.0},
        "from the crawls": found["found"],
        "by age alone": ages["found"],
    }
    fresh.bar(
        list(bars),
        [bar["value"] for bar in bars.values()],
        yerr=[2.0 * bar["error"] for bar in bars.values()],
        capsize=4,
        width=0.6,
    )
    fresh.set(ylabel="freshness (importance-weighted)", ylim=(0.0, 1.0))
    save(figure, file)
