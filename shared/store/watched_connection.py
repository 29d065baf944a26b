"""A connection that gives a server up which has stopped, however long one that works may take.

What is stopped (by a signal, a machine that swaps, a disk that hangs) keeps its connections, and
the system acknowledges for it what is sent: no time-out of TCP's ends the wait. And a statement may
rightly take hours, in which nothing comes. So when nothing has come for a while the server is asked
for another connection, at the address of this one: it lets somebody in, or says why not, as long as
it works. Of a pooler in between only that is learned of the pooler.
"""

import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")

QUIET_SECONDS: Final = 10.0
"""Nothing has come for so long: it is asked whether it is there."""

PROBE_SECONDS: Final = 10
"""It has so long to let somebody in; libpq takes whole seconds, two at least."""

PROBES: Final = 2
"""So many in a row without an answer, and it is given up: one may fall into a bad moment."""


class ServerStopped(psycopg.OperationalError):
    """It took a connection, and says nothing more, to nobody; the text says which it is."""


class WatchedConnection(psycopg.Connection[Any]):
    """As `psycopg.Connection`, but that no wait is for ever."""

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        """Wait for an operation, as all of them do.

        Raises:
            ServerStopped: the server has; the connection is closed.
        """
        return super().wait(self._watched(gen), *args, **more)

    def _watched(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        """The operation's steps. It is told every tenth of a second that nothing is ready."""
        heard_at, unanswered, is_wanted = time.monotonic(), 0, True
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                # None: waited for anew, as somebody has pressed Ctrl-C and it is to be cancelled.
                is_wanted = is_wanted and ready is not None
                if ready:
                    heard_at, unanswered = time.monotonic(), 0
                elif time.monotonic() - heard_at > QUIET_SECONDS:
                    if is_wanted and self._lets_in():
                        heard_at, unanswered = time.monotonic(), 0
                    else:
                        unanswered += 1
                    if unanswered == PROBES:
                        self._give_up(time.monotonic() - heard_at)
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result

    def _lets_in(self) -> bool:
        """Whether the server has an answer for somebody else, be it a refusal."""
        own = self.info
        where: dict[str, Any] = {"host": own.host, "port": own.port, "password": own.password}
        if own.hostaddr:
            where["hostaddr"] = own.hostaddr
        # The same server, whatever it is by now: another one says nothing of it.
        where |= {"target_session_attrs": "any", "connect_timeout": PROBE_SECONDS}
        where |= {"application_name": "freshet-probe"}
        try:
            psycopg.connect(**(own.get_parameters() | where)).close()
        except psycopg.errors.ConnectionTimeout:
            return False
        except psycopg.Error:
            return True
        return True

    def _give_up(self, seconds: float) -> None:
        place = f"{self.info.host}:{self.info.port}/{self.info.dbname}"
        # Nothing can be asked over it any more, not even the end of a transaction.
        self.pgconn.finish()
        raise ServerStopped(
            f"{place} has said nothing for {seconds:.0f} s, and lets nobody else in either"
        )
