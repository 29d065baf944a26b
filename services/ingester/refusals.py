"""Which refused signals are kept for the operators: all while they are few, some of a flood.

Anybody can send what must be refused, as fast as they like and large. If each had a copy in the
dead letters, a flood of rubbish would fill the disk that the others need.
"""

LETTERS_AT_ONCE = 1000.0
"""So many copies may be made at once."""

LETTER_BYTES = 4096
"""A longer message counts as several."""


class Refusals:
    """A token bucket of copies. Times are wall seconds, handed in: they protect the disk."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self.uncopied = 0
        """How many were only counted since the last copy."""
        self._tokens = LETTERS_AT_ONCE
        self._filled_at = 0.0

    def copied_as(self, reason: str, size: int, now: float) -> str | None:
        """What a copy of a refused message says; None: it is only counted.

        Args:
            reason: why it was refused.
            size: bytes of the message.
            now: wall seconds.
        """
        gained = max(now - self._filled_at, 0.0) * self.per_second
        self._tokens = min(self._tokens + gained, LETTERS_AT_ONCE)
        self._filled_at = now
        if self._tokens < 1.0:
            self.uncopied += 1
            return None
        # A large one may overdraw: else it would never be seen.
        self._tokens -= max(size / LETTER_BYTES, 1.0)
        before, self.uncopied = self.uncopied, 0
        if not before:
            return reason
        return (
            f"{reason} (and before it {before} more were refused that are not kept: at most "
            f"{self.per_second:g} a second are, FRESHET_REFUSED_SIGNALS_KEPT_PER_SECOND)"
        )
