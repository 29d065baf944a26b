"""The receiver's way to its subscriptions in PostgreSQL."""

import time
from collections import OrderedDict
from typing import Final

import psycopg

from services.receiver.refusing import Refused
from shared.store.questions import Questions
from shared.store.subscriptions import Subscription, find_subscription
from shared.units import SECONDS_PER_DAY

FRESH_SECONDS: Final = 2.0
"""What was read is believed for so long; longer while the database is away."""

MOST_KNOWN: Final = 10_000
RETRY_SECONDS: Final = 10


RENEW_AFTER: Final = 0.7
"""The part of a lease after which it is renewed: there is time to try again."""

REFUSED_SECONDS: Final = SECONDS_PER_DAY
"""A hub that has refused is asked again after so long."""


def renewal_after(lease_seconds: float, asked_seconds: float) -> float:
    """Seconds after which a lease is renewed.

    A longer one than was asked for is renewed as if it were not: so it is known how far ahead a
    renewal can lie, and what lies further was written while a clock was wrong.

    Args:
        lease_seconds: that a hub has granted.
        asked_seconds: that it was asked for.
    """
    return RENEW_AFTER * min(lease_seconds, asked_seconds)


class Subscriptions(Questions):
    """Rows by their ids."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url, "receiver")
        self._known: OrderedDict[str, tuple[Subscription, float]] = OrderedDict()

    async def find(self, subscription_id: str) -> Subscription | None:
        """A row, of a moment ago at worst; of earlier where the database is away.

        Raises:
            Refused: 503, it is away, and was not asked for this one before.
        """
        known = self._known.get(subscription_id)
        if known is not None and time.monotonic() - known[1] < FRESH_SECONDS:
            return known[0]
        try:
            found = await self.ask(find_subscription, subscription_id)
        except psycopg.Error as error:
            if known is not None:
                return known[0]
            raise Refused(503, "subscriptions cannot be read now", RETRY_SECONDS) from error
        self.forget(subscription_id)
        if found is not None:
            self._known[subscription_id] = found, time.monotonic()
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return found

    def knows(self, subscription_id: str) -> bool:
        """Whether a row was there when it was read last."""
        return subscription_id in self._known

    def forget(self, subscription_id: str) -> None:
        """Read it anew the next time."""
        self._known.pop(subscription_id, None)
