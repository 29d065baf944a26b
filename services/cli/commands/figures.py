"""`freshet figures`."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from services.cli.errors import UserError
from services.replay.experiments.catalogue import FIGURES
from services.replay.experiments.drawing import draw
from services.replay.experiments.results import Scale, Told
from services.replay.polite_crawling import DatasetError, PoliteCrawling, read_polite_crawling
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
@click.option(
    "--polite-crawling",
    "dataset_folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The unpacked files of [K]'s dataset: k1, k2 and k3 draw their pages from it.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--format", "ending", type=click.Choice(["svg", "png"]), default="svg", show_default=True
)
def command(
    names: tuple[str, ...],
    out: Path,
    repetitions: int,
    pages: int,
    dataset_folder: Path | None,
    seed: int,
    ending: str,
) -> None:
    """Repeat the experiments of the papers, with error bars; all of them, or those named.

    Names are n2 to n14 for [N] (A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating
    Signals) and k1 to k3 for [K] (LambdaCrawl). Each gives a picture and a JSON file.

    \b
    Examples:
      freshet figures
      freshet figures n4 k1 --repetitions 3 --out results --format png
      freshet figures k1 k2 k3 --polite-crawling Dataset --pages 100000
    """
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise UserError(f"there is no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    out.mkdir(parents=True, exist_ok=True)
    try:
        dataset = _dataset(dataset_folder)
        scale = Scale(repetitions, seed, pages, dataset)
        for name in names or tuple(FIGURES):
            _make(name, scale, out, ending)
    except DatasetError as error:
        raise UserError(str(error)) from error


def _dataset(folder: Path | None) -> PoliteCrawling | None:
    if folder is None:
        return None
    with _bar("reading the dataset") as told:
        return read_polite_crawling(folder, told)


def _make(name: str, scale: Scale, out: Path, ending: str) -> None:
    """Compute a figure; write its picture and its numbers."""
    with _bar(name) as told:
        figure = FIGURES[name](scale, told)
    draw(figure, out / f"{name}.{ending}")
    numbers = figure.report() | {
        "code_version": code_version(),
        "repetitions": scale.repetitions,
        "pages": scale.pages,
        "seed": scale.seed,
    }
    text = json.dumps(_finite(numbers), indent=2, ensure_ascii=False, allow_nan=False)
    (out / f"{name}.json").write_text(text + "\n")
    click.echo(f"{out / name}.{ending}  {figure.title}")


@contextmanager
def _bar(name: str) -> Iterator[Told]:
    """A progress bar on standard error, if someone watches it."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _finite(value: Any) -> Any:
    """Infinite numbers, which JSON lacks, as null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
