"""Which times and hosts of signals are taken: by the ingester, and by the receiver, whose senders
hear of it at once. Pure, with the time as an argument."""

from dataclasses import dataclass
from typing import Self

from shared.contracts.codec import BadMessage
from shared.contracts.identity import BadUrl, is_private_host, not_public
from shared.runtime.acceptance import CLOCK_SLACK_SECONDS
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class SignalBounds:
    """What a signal is held to. Seconds are the clock's."""

    future_tolerance_seconds: float
    max_age_seconds: float
    allow_private_hosts: bool

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Self:
        """Those of the settings."""
        slack = 0.0 if isinstance(clock, SystemClock) else clock.span(CLOCK_SLACK_SECONDS)
        return cls(
            future_tolerance_seconds=settings.signal_future_tolerance_seconds + slack,
            max_age_seconds=settings.signal_max_age_days * SECONDS_PER_DAY,
            allow_private_hosts=settings.allow_private_hosts,
        )

    def check_time(self, observed_at: float, now: float) -> None:
        """Refuse what is of the future, or too old.

        Args:
            observed_at: Unix seconds.
            now: of the clock.

        Raises:
            BadMessage: it is one of these.
        """
        ahead = observed_at - now
        if ahead > self.future_tolerance_seconds:
            raise BadMessage(
                f"observed {ahead:.0f} s in the future; at most "
                f"{self.future_tolerance_seconds:.0f} s are taken: check the sender's clock"
            )
        if -ahead > self.max_age_seconds:
            raise BadMessage(
                f"observed {-ahead / SECONDS_PER_DAY:.1f} days ago; at most "
                f"{self.max_age_seconds / SECONDS_PER_DAY:.1f} days are taken"
            )

    def check_host(self, host: str) -> None:
        """Refuse a host that nobody outside can reach, unless the operator takes such.

        Raises:
            BadUrl: it is not on the public internet.
        """
        if not self.allow_private_hosts and is_private_host(host):
            raise BadUrl(not_public(host, to="take such signals"))
