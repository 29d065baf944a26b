"""What was looked at, and whether a promise rests on it safely: for commands and the log."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "note", "risk"]
"""`note`: worth knowing, as a promise was never given here; `risk`: one that was does not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    about: str
    """What was looked at."""
    found: str
    """What is."""
    wanted: str = ""
    """What should be; empty where nothing is amiss."""
    promise: str = ""
    """The promise that does not hold while it is so."""
    remedy: str = ""
    """What to do."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def gathered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that say the same of several things become one, the worst first."""
    subjects: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        key = (finding.level, finding.found, finding.wanted, finding.promise, finding.remedy)
        subjects.setdefault(key, []).append(finding.about)
        first.setdefault(key, finding)
    joined = [
        Finding(
            finding.level,
            ", ".join(subjects[key]),
            finding.found,
            finding.wanted,
            finding.promise,
            finding.remedy,
        )
        for key, finding in first.items()
    ]
    return sorted(joined, key=lambda finding: ("risk", "note", "ok").index(finding.level))
