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
from services.replay.experiments.accuracy import compared
from services.replay.experiments.catalogue import FIGURES, figure_names
from services.replay.experiments.drawing import draw
from services.replay.experiments.results import Scale, Told
from services.replay.polite_crawling import DatasetError, PoliteCrawling, read_polite_crawling
from services.replay.version import code_version
from shared.terminal.output import show_json, show_rows


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
@click.option("--json", "as_json", is_flag=True, help="Answer with all numbers as JSON.")
def command(
    names: tuple[str, ...],
    out: Path,
    repetitions: int,
    pages: int,
    dataset_folder: Path | None,
    seed: int,
    ending: str,
    *,
    as_json: bool,
) -> None:
    """Repeat the experiments of the papers, with error bars; all of them, or those named.

    Names are n2 to n14 for [N] (A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating
    Signals) and k1 to k3 for [K] (LambdaCrawl); `harmonic` compares the harmonic objective with
    LambdaCrawl on simulated changes, `estimator` studies how well parameters are learned. Each
    gives a picture and a JSON file.

    \b
    Examples:
      freshet figures
      freshet figures n4 k1 --repetitions 3 --out results --format png
      freshet figures harmonic estimator --json
      freshet figures k1 k2 k3 --polite-crawling Dataset --pages 100000
    """
    try:
        chosen = figure_names(names)
    except ValueError as error:
        raise UserError(str(error)) from error
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: no folder can be made there: {error.strerror}") from error
    try:
        dataset = _dataset(dataset_folder)
        scale = Scale(repetitions, seed, pages, dataset)
        numbers: dict[str, Any] = {}
        for name in chosen:
            numbers[name] = _make(name, scale, out, ending)
            if not as_json:
                _tell(numbers[name], out / f"{name}.{ending}")
        if as_json:
            show_json(numbers)
    except DatasetError as error:
        raise UserError(str(error)) from error


def _dataset(folder: Path | None) -> PoliteCrawling | None:
    if folder is None:
        return None
    with _bar("reading the dataset") as told:
        return read_polite_crawling(folder, told)


def _tell(numbers: dict[str, Any], picture: Path) -> None:
    click.echo(f"{picture}  {numbers['title']}")
    if numbers.get("compared"):
        show_rows(numbers["compared"], as_json=False, empty="")


def _make(name: str, scale: Scale, out: Path, ending: str) -> dict[str, Any]:
    """Compute a figure; write its picture and its numbers, and return them."""
    with _bar(name) as told:
        figure = FIGURES[name](scale, told)
    draw(figure, out / f"{name}.{ending}")
    numbers = figure.report() | {
        "code_version": code_version(),
        "repetitions": scale.repetitions,
        "pages": scale.pages,
        "seed": scale.seed,
    }
    if name == "n4":
        numbers["compared"] = compared(figure)
    finite: dict[str, Any] = _finite(numbers)
    text = json.dumps(finite, indent=2, ensure_ascii=False, allow_nan=False)
    (out / f"{name}.json").write_text(text + "\n")
    return finite


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
