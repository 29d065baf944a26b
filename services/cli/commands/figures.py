"""`freshet figures`."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from services.cli.errors import UserError
from services.replay.experiments.catalogue import FIGURES
from services.replay.experiments.drawing import draw
from services.replay.experiments.results import Scale
from services.replay.version import code_version


@click.command()
@click.argument("names", nargs=-1, metavar="[FIGURE]...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("figures"),
    show_default=True,
    help="Folder for pictures and numbers.",
)
@click.option("--repetitions", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--pages",
    type=click.IntRange(min=20),
    default=10_000,
    show_default=True,
    help="Size of populations with the shape of a real dataset (n5, k1, k2, k3).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--format", "ending", type=click.Choice(["svg", "png"]), default="svg", show_default=True
)
def command(
    names: tuple[str, ...], out: Path, repetitions: int, pages: int, seed: int, ending: str
) -> None:
    """Repeat the experiments of the papers, with error bars; all of them, or those named.

    Names are n2 to n14 for [N] (A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating
    Signals) and k1 to k3 for [K] (LambdaCrawl). Each gives a picture and a JSON file.

    \b
    Examples:
      freshet figures
      freshet figures n4 k1 --repetitions 3 --out results --format png
    """
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise UserError(f"there is no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    out.mkdir(parents=True, exist_ok=True)
    scale = Scale(repetitions, seed, pages)
    console = Console(stderr=True)
    for name in names or tuple(FIGURES):
        with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task(name, total=1.0)
            figure = FIGURES[name](scale, partial(_advance, progress, task))
        draw(figure, out / f"{name}.{ending}")
        numbers = figure.report() | {
            "code_version": code_version(),
            "repetitions": repetitions,
            "pages": pages,
            "seed": seed,
        }
        text = json.dumps(_finite(numbers), indent=2, ensure_ascii=False, allow_nan=False)
        (out / f"{name}.json").write_text(text + "\n")
        click.echo(f"{out / name}.{ending}  {figure.title}")


def _advance(progress: Progress, task: TaskID, share: float) -> None:
    progress.update(task, completed=share)


def _finite(value: Any) -> Any:
    """Infinite numbers, which JSON lacks, as null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
