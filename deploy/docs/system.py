"""The picture of the system: who writes what to whom."""

import io
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

_OURS, _THEIRS, _STORE = "#0b3c5d", "#5c677d", "#2e933c"
_STYLE: dict[Any, object] = {
    "font.sans-serif": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "svg.hashsalt": "freshet",
}
_WIDTH, _HEIGHT = 11.3, 4.4


@dataclass(frozen=True, slots=True)
class _Box:
    """Somebody, with the middle of the box."""

    name: str
    does: str
    x: float
    y: float
    colour: str
    width: float = 1.75
    height: float = 0.78


_BOXES = (
    _Box("web-ping producers", "say that a page may have changed", 1.15, 3.85, _THEIRS, 2.1),
    _Box("operators", "pages, budget, host limits", 1.15, 1.75, _THEIRS, 2.1),
    _Box("your crawlers", "crawl, and say what they found", 10.15, 2.8, _THEIRS, 2.0),
    _Box("INGESTER", "untrusted signals into clean ones", 4.25, 3.85, _OURS, 2.1),
    _Box("SCHEDULER", "a shard a partition: picks, slot by slot", 7.25, 2.8, _OURS, 2.3),
    _Box("COORDINATOR", "shares the budget out: λ₀", 4.25, 1.75, _OURS, 2.1),
    _Box("ESTIMATOR", "learns rates, and what signals are worth", 7.25, 0.6, _OURS, 2.3),
    _Box("PostgreSQL", "pages, and how far streams are applied", 4.25, 0.6, _STORE, 2.1),
)


@dataclass(frozen=True, slots=True)
class Arrow:
    """A topic on its way, through points, with its name where there is room for it."""

    points: tuple[tuple[float, float], ...]
    text: str
    at: tuple[float, float]
    align: str = "center"
    crosses: bool = False
    """Whether it passes over another, which it has nothing to do with."""


ARROWS = (
    Arrow(((5.7, 3.85), (5.7, 0.75), (6.08, 0.75)), "", (0, 0)),
    Arrow(((2.2, 3.85), (3.18, 3.85)), "signals", (2.68, 3.9)),
    Arrow(((5.3, 3.85), (7.25, 3.85), (7.25, 3.21)), "page-signals", (6.4, 3.9)),
    Arrow(((1.15, 2.15), (1.15, 2.8), (6.08, 2.8)), "page-updates, host-limits", (3.0, 2.85)),
    Arrow(((2.2, 1.75), (3.18, 1.75)), "bandwidth", (2.68, 1.8)),
    Arrow(((5.3, 1.92), (6.7, 1.92), (6.7, 2.39)), "multipliers", (6.2, 1.97), crosses=True),
    Arrow(((7.05, 2.4), (7.05, 1.58), (5.32, 1.58)), "demand-curves", (6.3, 1.37), crosses=True),
    Arrow(((7.85, 1.0), (7.85, 2.39)), "page-parameters", (7.92, 1.6), "left"),
    Arrow(((8.4, 2.95), (9.13, 2.95)), "crawl-requests", (8.77, 3.28)),
    Arrow(((9.15, 2.65), (8.42, 2.65)), "", (0, 0)),
    Arrow(((10.15, 2.4), (10.15, 0.6), (8.42, 0.6)), "crawl-outcomes", (9.3, 0.65)),
    Arrow(((6.1, 0.45), (5.32, 0.45)), "", (0, 0)),
)
"""The first one is the way of two topics to the estimator; later ones are drawn over it."""


def draw() -> bytes:
    """The picture as an SVG file: always the same bytes."""
    target = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0, _WIDTH), ylim=(0, _HEIGHT))
        axes.set_axis_off()
        for arrow in ARROWS:
            _draw_arrow(axes, arrow)
        for box in _BOXES:
            _draw_box(axes, box)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def _draw_box(axes: Axes, box: _Box) -> None:
    left, bottom = box.x - box.width / 2, box.y - box.height / 2
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom),
            box.width,
            box.height,
            boxstyle="round,pad=0,rounding_size=0.1",
            facecolor="white",
            edgecolor=box.colour,
            linewidth=1.6,
            zorder=3,
        )
    )
    middle: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 4}
    axes.text(box.x, box.y + 0.13, box.name, color=box.colour, size=10, weight="bold", **middle)
    axes.text(box.x, box.y - 0.15, box.does, color="0.3", size=7, **middle)


def _draw_arrow(axes: Axes, arrow: Arrow) -> None:
    xs, ys = zip(*arrow.points[:-1], strict=True)
    if arrow.crosses:
        axes.plot(*zip(*arrow.points, strict=True), color="white", linewidth=5)
    axes.plot(xs, ys, color="0.45", linewidth=1.2, solid_joinstyle="round")
    axes.annotate(
        "",
        xy=arrow.points[-1],
        xytext=arrow.points[-2],
        arrowprops={
            "arrowstyle": "-|>",
            "color": "0.45",
            "shrinkA": 0,
            "shrinkB": 0,
            "linewidth": 1.2,
        },
    )
    if arrow.text:
        axes.text(*arrow.at, arrow.text, ha=arrow.align, va="bottom", size=8, family="monospace")
