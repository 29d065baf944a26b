"""What a check found."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

MOST_EXAMPLES: Final = 8


@dataclass(slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    what: str
    """What must hold."""
    count: int = 0
    """How often it does not."""
    looked_at: int = 0
    """How many items it was looked for in."""
    examples: list[str] = field(default_factory=list)
    """The first few offenders."""
    figures: dict[str, Any] = field(default_factory=dict)
    """How much was looked at, and what else is worth knowing."""

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return self.count == 0

    @classmethod
    def of(
        cls, check: str, what: str, offenders: Iterable[str], *, looked_at: int = 0, **figures: Any
    ) -> "Finding":
        """Count offenders, and keep the first ones."""
        found = list(offenders)
        return cls(check, what, len(found), looked_at, found[:MOST_EXAMPLES], figures)

    @classmethod
    def of_delays(
        cls,
        check: str,
        what: str,
        delays: Iterable[tuple[float, str]],
        allowed: float,
        figure: str,
        **figures: Any,
    ) -> "Finding":
        """Count delays of more seconds than are allowed; `figure` is the name of the longest.

        Each delay is an item that was looked at.
        """
        found = list(delays)
        longest = max((seconds for seconds, _ in found), default=0.0)
        figures[figure] = round(max(longest, 0.0), 2)
        late = (text for seconds, text in found if seconds > allowed)
        return cls.of(check, what, late, looked_at=len(found), **figures)

    def demanded(self) -> "Finding":
        """The same, but failed if nothing was looked at: then nothing was shown either."""
        if self.looked_at:
            return self
        return replace(self, count=1, examples=["nothing was looked at, and the plan demands it"])
