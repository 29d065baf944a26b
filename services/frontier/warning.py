"""What operators must know of their clients, and need not read for each URL."""

from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Once:
    """Warns of each thing the first time that it is seen; after that the metrics count it."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, event: str, **more: Any) -> None:
        """Say it, if it has not been said.

        Args:
            event: the same words for the same thing.
            more: about this time.
        """
        if event not in self._said:
            self._said.add(event)
            log.warning(event, said="once", **more)
