"""The live terminal view of a run, and its plain form where there is no terminal."""

import time
from collections import deque
from typing import Any, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.local.supervisor import ChildState
from services.run.options import RunOptions
from services.run.session import Session
from shared.terminal.visible import visible

LINE_SECONDS = 5.0
_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 60


class Watcher:
    """Shows a run from its first look on: live on a terminal, else line by line."""

    def __init__(self, options: RunOptions, is_terminal: bool) -> None:
        self._live = options.view and is_terminal
        self._view: LineView | LiveView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        if isinstance(self._view, LiveView):
            self._view.close()

    def __call__(self, session: Session) -> None:
        """Show how the run stands now."""
        if self._view is None:
            self._view = LiveView() if self._live else LineView()
            if session.options.world == "none":
                click.echo(where_to_connect(session), err=True)
        self._view.show(session)


class LineView:
    """A line every few seconds on standard error."""

    def __init__(self) -> None:
        self._last = 0.0

    def show(self, session: Session) -> None:
        """Print a line if it is time for one."""
        if time.monotonic() - self._last < LINE_SECONDS:
            return
        self._last = time.monotonic()
        status = session.status()
        if status:
            click.echo(status_line(status), err=True)
        elif session.picture:
            click.echo(picture_line(session.picture), err=True)
        for trouble in session.failing():
            click.echo(trouble, err=True)


class LiveView:
    """A picture that redraws itself."""

    def __init__(self) -> None:
        self._live = Live(console=Console(stderr=True), auto_refresh=False, screen=False)
        self._achieved: deque[float] = deque(maxlen=_KEPT)
        self._freshness: deque[float] = deque(maxlen=_KEPT)
        self._live.start()

    def close(self) -> None:
        """Leave the last picture, and the terminal as it was."""
        self._live.stop()

    def show(self, session: Session) -> None:
        """Draw."""
        status = session.status()
        if status:
            self._achieved.append(status["achieved_per_second"])
            self._freshness.append(status["freshness_now"])
        self._live.update(self.picture(session, status), refresh=True)

    def picture(self, session: Session, status: dict[str, Any]) -> RenderableType:
        """The whole picture."""
        parts: list[RenderableType] = []
        if status:
            parts.append(self._numbers(status))
        elif session.options.world == "none":
            parts.append(Text(where_to_connect(session)))
            parts += [Text(picture_line(session.picture))] if session.picture else []
        parts += [_children(session), Text(f"Web page: {session.url}    Ctrl-C stops everything.")]
        return Panel(Group(*parts), title="Freshet", border_style="cyan")

    def _numbers(self, status: dict[str, Any]) -> Table:
        table = Table.grid(padding=(0, 2))
        end = status["end_day"]
        day = f"{status['day']:.2f}" + (f" of {end:g}" if end is not None else "")
        table.add_row("clock", f"day {day}", f"({status['state']})")
        table.add_row(
            "freshness",
            f"{status['freshness']:.4f} so far, {status['freshness_now']:.4f} now",
            sparkline(self._freshness, low=min(self._freshness), high=1.0),
        )
        budget = status["bandwidth_per_second"]
        table.add_row(
            "crawls/s",
            f"{status['achieved_per_second']:.1f} of {budget:.1f}",
            sparkline(self._achieved, low=0.0, high=max(budget, *self._achieved, 1e-9)),
        )
        multiplier = status["multiplier"]
        table.add_row("λ₀", "-" if multiplier is None else f"{multiplier:.4g}", "")
        table.add_row("shards", str(status["shards"]), "")
        table.add_row(
            "requests",
            f"{status['requests']:,} ({status['in_flight']} in flight)",
            _counts(status["reasons"]),
        )
        table.add_row("found", f"{status['answered']:,}", _counts(status["results"]))
        table.add_row("signals", f"{status['signals']:,}", f"{status['page_signals']:,} passed on")
        table.add_row(
            "dead letters",
            Text(str(status["dead_letters"]), style="red" if status["dead_letters"] else ""),
            Text(visible("; ".join(status["dead_letter_reasons"]))[:100]),
        )
        table.add_row("p99", _latencies(status["latency_seconds"]), "")
        return table


def status_line(status: dict[str, Any]) -> str:
    """The status on one line."""
    multiplier = status["multiplier"]
    return (
        f"day {status['day']:.2f}  freshness {status['freshness']:.4f}  "
        f"crawls/s {status['achieved_per_second']:.1f}/{status['bandwidth_per_second']:.1f}  "
        f"λ₀ {'-' if multiplier is None else format(multiplier, '.4g')}  "
        f"requests {status['requests']:,}  signals {status['signals']:,}  "
        f"dead letters {status['dead_letters']}"
    )


def picture_line(picture: dict[str, Any]) -> str:
    """What the coordinator shows, on one line."""
    now = picture["now"]
    line = (
        f"crawls/s {now['achieved']:.1f}/{now['bandwidth']:.1f}  λ₀ {now['multiplier']:.4g}  "
        f"pages {picture['pages']:,}  shards {picture['live_shards']} live, "
        f"{picture['silent_shards']} silent"
    )
    return f"{line}  {picture['notice']}" if picture["notice"] else line


def where_to_connect(session: Session) -> str:
    """For a crawler of one's own."""
    settings = session.stack.settings
    prefix = settings.topic_prefix
    return (
        f"connect a crawler to Kafka at {settings.kafka_bootstrap_servers}: it reads "
        f"{prefix}crawl-requests and writes {prefix}crawl-outcomes, both keyed by host "
        f"({session.partitions} partitions)"
    )


def sparkline(values: deque[float], *, low: float, high: float) -> str:
    """Values as a row of bars between two bounds."""
    span = max(high - low, 1e-12)
    levels = (min(max((value - low) / span, 0.0), 1.0) for value in values)
    return "".join(_BARS[int(level * (len(_BARS) - 1) + 0.5)] for level in levels)


def _children(session: Session) -> Table:
    table = Table(box=None, padding=(0, 2))
    for heading in ("process", "state", "restarts", "pid"):
        table.add_column(heading)
    for child in session.stack.supervisor.children():
        style = "" if child.state is ChildState.RUNNING else "yellow"
        table.add_row(
            child.name, child.state.value, str(child.restarts), str(child.pid or "-"), style=style
        )
    return table


def _counts(counts: dict[str, int]) -> str:
    return "  ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _latencies(hops: dict[str, Any]) -> str:
    known = {hop: times["p99"] for hop, times in hops.items() if times["p99"] is not None}
    return "  ".join(
        f"{hop.replace('_', ' ')} {seconds * 1000:.0f} ms" for hop, seconds in known.items()
    )
