"""The verdict, as plain JSON values and as a few lines for people."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.verify.checking import Facts
from services.verify.checks.finding import Finding
from services.verify.plan import VerifyPlan

_LOST: Final = ("published", "crawls applied", "histories", "signals", "answered")
_DUPLICATED: Final = (
    *("crawls applied once", "histories once", "in flight", "crawls in a row", "slots"),
)


def compose(
    plan: VerifyPlan, facts: Facts, findings: Sequence[Finding], restarts: Mapping[str, int]
) -> dict[str, Any]:
    """The report."""
    by_check = {finding.check: finding for finding in findings}

    def total(checks: Sequence[str]) -> int:
        return sum(by_check[check].count for check in checks if check in by_check)

    recovery = by_check["recovery"].figures
    begin, end = facts.began, facts.budget_changes[-1][0]
    return {
        "passed": all(finding.passed for finding in findings),
        "lost": total(_LOST),
        "duplicated": total(_DUPLICATED),
        "over_budget_seconds": by_check["budget"].count,
        "over_budget_seconds_by_arrival": by_check["budget by arrival"].count,
        "over_limit_hosts": by_check["host limits"].count,
        "over_limit_hosts_by_arrival": by_check["host limits by arrival"].count,
        "forgotten_pages": total(("visits", "shards")),
        "faults": {
            kind: {"count": count, "recovery": recovery["by_fault"].get(kind)}
            for kind, count in sorted(Counter(f.kind for f in facts.injected).items())
        },
        "recovery_seconds": {part: recovery[f"{part}_seconds"] for part in ("p50", "p99", "max")},
        "records_forgotten": sum(fault.forgotten for fault in facts.injected),
        "transactions": dict(facts.transactions),
        "looked_at": {finding.check: finding.looked_at for finding in findings},
        "checks": [
            {
                "check": finding.check,
                "what": finding.what,
                "passed": finding.passed,
                "looked_at": finding.looked_at,
                "offenders": finding.count,
                "examples": finding.examples,
                **finding.figures,
            }
            for finding in findings
        ],
        "injected": [
            {
                "fault": fault.kind,
                "what": fault.what,
                "at_seconds": round(fault.began - begin, 2),
                "seconds": round(fault.ended - fault.began, 2),
            }
            for fault in facts.injected
        ],
        "seconds": round(end - begin, 1),
        "topology": plan.topology,
        "broker": plan.broker,
        "seed": plan.seed,
        "pages": plan.pages,
        "restarts": dict(restarts),
    }


def summary(report: Mapping[str, Any]) -> list[str]:
    """A line a check, with the first offenders of those that failed."""
    lines = []
    for check in report["checks"]:
        mark = "ok    " if check["passed"] else "FAILED"
        lines.append(f"{mark}  {check['what']} (of {check['looked_at']:,})" + _offenders(check))
    faults = sum(kind["count"] for kind in report["faults"].values())
    seconds = report["recovery_seconds"]
    if seconds["p50"] is not None:
        lines.append(
            f"{faults} faults; back at the budget {seconds['p50']:.1f} s after each (median), "
            f"{seconds['max']:.1f} s at most"
        )
    lines.append("passed" if report["passed"] else "FAILED")
    return lines


def _offenders(check: Mapping[str, Any]) -> str:
    if check["passed"]:
        return ""
    return f": {check['offenders']} offenders" + "".join(
        f"\n          {e}" for e in check["examples"]
    )
