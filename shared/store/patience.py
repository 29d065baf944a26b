"""Whether this process waits for a database that has stopped as long as it takes.

Workers do, each in its own way, and say in `/readyz` what they wait for. Before a command somebody
sits: it ends (`shared.store.watched_connection`). Loads no driver, as few commands need one.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Patience:
    """Of all connections that are made from now on."""

    def __init__(self) -> None:
        self.ends = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Until this is left, wait for no server that has stopped."""
        before, self.ends = self.ends, True
        try:
            yield
        finally:
            self.ends = before


DATABASE_PATIENCE = Patience()
