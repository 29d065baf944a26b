"""The report of a run, and its short form for people."""

from importlib.metadata import version
from typing import Any

from services.run.options import RunOptions
from shared.runtime.settings import Settings

_SHOWN_SETTINGS = (
    "partitions",
    "policy",
    "tick_seconds",
    "effective_lead_seconds",
    "request_timeout_seconds",
    "default_host_crawls_per_second",
    "batch_linger_seconds",
    "material_change",
    "work_conserving",
)


def compose(
    result: dict[str, Any],
    options: RunOptions,
    settings: Settings,
    restarts: dict[str, int],
    *,
    interrupted: bool,
) -> dict[str, Any]:
    """The world's result with what it was got under."""
    return {
        **result,
        "interrupted": interrupted,
        "restarts": restarts,
        "policy": settings.policy,
        "broker": options.broker,
        "world": options.world,
        "schedulers": options.schedulers,
        "seed": options.seed,
        "settings": {name: getattr(settings, name) for name in _SHOWN_SETTINGS},
        "version": version("freshet"),
    }


def summary(report: dict[str, Any]) -> list[str]:
    """A few lines for the end of a run."""
    pace = report["achieved_rate"]
    share = pace["share_of_budget"]
    lines = [
        f"{report['days']:.2f} days in {report['seconds']:.1f} s",
        f"freshness {report['freshness']:.4f}, staleness {report['staleness']:.5f} "
        "(importance-weighted, over the whole run)",
        f"{report['crawls']:,} crawls, {pace['steady_crawls_per_second']:.1f} a second"
        + (f", {share:.1%} of the budget" if share is not None else "")
        + f"; {report['seconds_over_budget']} seconds over it",
        f"{report['requests']:,} requests, {report['answered']:,} answered, "
        f"{report['unanswered']} not, {report['answered_twice']} twice",
        f"{report['signals']:,} signals, {report['dead_letters']:,} dead letters",
    ]
    lines += [
        f"bandwidth {step['from_per_second']:.1f} → {step['to_per_second']:.1f} crawls/s: "
        + ("not reached" if step["seconds"] is None else f"reached in {step['seconds']:.2f} s")
        for step in report["bandwidth_steps"]
    ]
    return lines
