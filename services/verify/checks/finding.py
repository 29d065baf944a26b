"""What a check found."""

from collections.abc import Iterable
from dataclasses import dataclass, field
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
    examples: list[str] = field(default_factory=list)
    """The first few offenders."""
    figures: dict[str, Any] = field(default_factory=dict)
    """How much was looked at, and what else is worth knowing."""

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return self.count == 0

    @classmethod
    def of(cls, check: str, what: str, offenders: Iterable[str], **figures: Any) -> "Finding":
        """Count offenders, and keep the first ones."""
        found = list(offenders)
        return cls(check, what, len(found), found[:MOST_EXAMPLES], figures)
