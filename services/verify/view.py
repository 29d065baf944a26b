"""What a verification is doing, live on a terminal or line by line."""

import time
from typing import Final, Self

import click
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from services.verify.verification import Verification

LINE_SECONDS: Final = 5.0


class Watcher:
    """Shows a verification, again and again."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._live = Live(console=Console(stderr=True), auto_refresh=False) if is_terminal else None
        self._last = 0.0
        self._shown = 0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_reason: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, verification: Verification) -> None:
        """Show how it stands now."""
        if self._live is not None:
            self._live.update(_panel(verification), refresh=True)
            return
        for fault in verification.injector.injected[self._shown :]:
            click.echo(f"{fault.began - verification.began:7.1f} s  {fault.what}", err=True)
        self._shown = len(verification.injector.injected)
        if time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            click.echo(_line(verification), err=True)


def _line(verification: Verification) -> str:
    now = ", ".join(verification.injector.now) or "nothing"
    return (
        f"{time.time() - verification.began:7.1f} s  {verification.state}; crawls/s "
        f"{verification.crawlers.rate(2.0):.0f} of {_budget(verification):.0f}, "
        f"{verification.crawlers.requests:,} requests, {verification.traffic.signals:,} signals; "
        f"fault now: {now}"
    )


def _budget(verification: Verification) -> float:
    changes = verification.sender.budget_changes
    return changes[-1][1] if changes else 0.0


def _panel(verification: Verification) -> Panel:
    table = Table.grid(padding=(0, 2))
    passed = time.time() - verification.began
    table.add_row("time", f"{passed:.0f} of {verification.plan.seconds:.0f} s", verification.state)
    table.add_row(
        "crawls/s",
        f"{verification.crawlers.rate(2.0):.0f} of {_budget(verification):.0f}",
        f"{verification.crawlers.requests:,} requests",
    )
    table.add_row("signals", f"{verification.traffic.signals:,}", "")
    now = "; ".join(
        f"{n} for {time.time() - t:.1f} s" for n, t in verification.injector.now.items()
    )
    table.add_row("fault now", now or "-", "")
    for fault in verification.injector.injected[-6:]:
        state = "" if fault.settled else "not back at its budget yet"
        table.add_row(f"{fault.began - verification.began:.1f} s", fault.what, state)
    return Panel(table, title="freshet verify", border_style="cyan")
