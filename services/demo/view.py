"""The live view of a demonstration, and its plain form where there is no terminal."""

import time
from typing import Final, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.local.supervisor import ChildState
from services.demo.report import interval_of
from services.demo.session import Demo
from services.demo.survey import Means, means

LINE_SECONDS: Final = 5.0
RECENT_SECONDS: Final = 15.0
"""What is called `now` is the mean of so long."""


class Watcher:
    """Shows a demonstration: live on a terminal, else line by line."""

    def __init__(self, is_terminal: bool) -> None:
        self._live = Live(console=Console(stderr=True), auto_refresh=False) if is_terminal else None
        self._last = 0.0
        self._is_live = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        if self._live is not None and self._is_live:
            self._live.stop()

    def __call__(self, demo: Demo) -> None:
        """Show how it stands now."""
        if self._live is not None:
            if not self._is_live:
                self._live.start()
                self._is_live = True
            self._live.update(_picture(demo), refresh=True)
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            click.echo(_line(demo), err=True)


def _now(demo: Demo) -> Means | None:
    """Of the last seconds."""
    now, looks = demo.website.now(), demo.survey.looks
    interval = interval_of(len(_paths(demo)), len(demo.website.visits), max(now, 1.0))
    return means(looks, interval, lambda look: look.at > now - RECENT_SECONDS)


def _paths(demo: Demo) -> list[str]:
    pages = [page for site in demo.website.sites for page in site.plan.pages.values()]
    return [page.path for page in pages if page.leads_to is None]


def _line(demo: Demo) -> str:
    found, tally = _now(demo), demo.tally
    fresh = "-" if found is None else f"{found.fresh:.0%} (in turn {found.in_turn:.0%})"
    return (
        f"{max(demo.website.now(), 0.0):4.0f} s  fresh {fresh}  requests {len(tally.requests)}  "
        f"in flight {tally.in_flight}  signals {sum(tally.signals.values())}  "
        f"dead letters {tally.dead_letters}"
    )


def _picture(demo: Demo) -> Panel:
    tally, now = demo.tally, demo.website.now()
    table = Table.grid(padding=(0, 2))
    table.add_row("time", f"{max(now, 0.0):.0f} of {demo.options.seconds:.0f} s", _bar(now, demo))
    found = _now(demo)
    for name, key in (("copies that are fresh", "fresh"), ("pages in turn would be", "in_turn")):
        share = 0.0 if found is None else float(getattr(found, key))
        table.add_row(name, f"{share:.0%}", ProgressBar(total=1.0, completed=share, width=40))
    rate = len(tally.requests) / max(now, 1.0)
    table.add_row("requests", f"{len(tally.requests):,}", f"{rate:.1f} a second")
    table.add_row("outcomes", f"{sum(tally.answers.values()):,}", _counts(tally.results))
    table.add_row("signals", f"{sum(tally.signals.values()):,}", _counts(tally.signals))
    table.add_row("visits", f"{len(demo.website.visits):,}", "of crawlers, poller and receiver")
    children = demo.system.stack.supervisor.children()
    waiting = [child.name for child in children if child.state is not ChildState.RUNNING]
    table.add_row("processes", str(len(children)), ", ".join(waiting) or "all run")
    page = Text(f"Web page: {demo.url}    Ctrl-C stops everything.")
    title = f"Freshet and {len(demo.website.sites)} sites"
    return Panel(Group(table, page), title=title, border_style="cyan")


def _bar(now: float, demo: Demo) -> ProgressBar:
    return ProgressBar(total=demo.options.seconds, completed=max(now, 0.0), width=40)


def _counts(counts: dict[str, int]) -> str:
    return "  ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
