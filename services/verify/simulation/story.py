"""What happened, for people to read."""

from typing import Final

from services.verify.simulation.plan import Fault, Kind
from services.verify.simulation.run import Result

MOST_LINES: Final = 60

BEFORE_SECONDS: Final = 0.5
"""The story begins so long before the first fault."""

_TEXTS: Final[dict[Kind, str]] = {
    "kill": "is killed, and started again {seconds:.1f} s later",
    "kill-in-commit": "is killed {place} its next commit",
    "term": "is asked to stop",
    "pause": "is paused for {seconds:.1f} s",
    "rebalance": "its group shares partitions anew",
    "broker-down": "the broker is down for {seconds:.1f} s",
    "database-down": "the database is down for {seconds:.1f} s",
    "long-database-outage": "the database is down for {seconds:.1f} s",
    "cut-broker": "is cut off from the broker for {seconds:.1f} s",
    "deaf": "hears nothing from the broker for {seconds:.1f} s",
    "cut-database": "is cut off from the database for {seconds:.1f} s",
    "clock": "its clock is set wrong",
    "duplicate": "somebody sends old messages again",
    "bandwidth": "the budget changes",
    "bad-message": "somebody sends a bad message",
    "overtaken": "loses its shards while its commit waits for the database",
    "leader-lost": "a partition has no leader for {seconds:.1f} s",
    "transaction": "somebody writes in a transaction that stays open for {seconds:.1f} s",
    "retention": "old records are deleted while their readers are away for {seconds:.1f} s",
    "records-lost": "brokers lose records that they had acknowledged",
    "topic-anew": "a topic is removed and made anew",
    "import": "pages are imported while the estimators are away for {seconds:.1f} s",
    "growth": "shards become more",
    "order": "operators say something of a page, a host or the budget",
    "marker": "transactions leave their markers on the topics",
}

_PLACES: Final = ("before", "within", "right after")

_ROUTINE: Final = ("commits", "info: multipliers published", "starts", "mended")


def describe(fault: Fault) -> str:
    """A fault in words."""
    place = _PLACES[int(fault.detail * len(_PLACES))]
    text = _TEXTS[fault.kind].format(seconds=fault.seconds, place=place)
    return f"{fault.target} {text}" if fault.target else text


def tell(result: Result) -> list[str]:
    """A story with times, the faults marked, and at its end what was broken."""
    plan = result.plan
    begin = min((fault.at for fault in plan.faults), default=0.0) - BEFORE_SECONDS
    faults = {fault.at: describe(fault) for fault in plan.faults}
    lines = [f"seed {plan.seed}, {plan.scale.seconds:.0f} s, {len(plan.faults)} faults"]
    before: tuple[str, str] | None = None
    for at, who, what in result.story:
        if at < begin or what.startswith(_ROUTINE) or (who, what) == before:
            continue
        before = (who, what)
        if who == "fault":
            told = faults.get(round(at, 3), what)
            lines.append(f"{at:8.3f} s  * {told}")
        elif who != "mended":
            lines.append(f"{at:8.3f} s    {who}: {what}"[:200])
    left = len(lines) - MOST_LINES
    if left > 0:
        lines = [*lines[:MOST_LINES], f"            … and {left} more"]
    for finding in result.findings:
        if not finding.passed:
            lines.append(f"broken: {finding.check} ({finding.what}), {finding.count} times")
            lines += [f"    {example}" for example in finding.examples[:3]]
    return lines
