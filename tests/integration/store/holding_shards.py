"""Shards that grow, and schedulers that hold them for it."""

import contextlib
import threading

from store_contents import SHARDS

from shared.contracts.databases import Databases
from shared.contracts.layout import Layout
from shared.store.connection import connect
from shared.store.splits import hold, take_over

alone = Databases.alone

GROWN = 2 * SHARDS
OVER = Layout(GROWN, SHARDS, frozenset(range(SHARDS)))
LONG = 100.0
PAGES = 40


def have_taken(url, shards):
    """Schedulers have loaded shards."""
    with connect(url, "scheduler", autocommit=True) as connection:
        take_over(connection, shards, "a scheduler")


@contextlib.contextmanager
def schedulers(url, parents=range(SHARDS), new=range(SHARDS, GROWN)):
    """They have the new shards, and hold what they are asked for."""
    have_taken(url, new)
    stopping = threading.Event()

    def answer():
        with connect(url, "scheduler", autocommit=True) as connection:
            while not stopping.wait(0.02):
                for parent in parents:
                    hold(connection, parent)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


class Log:
    """What was told."""

    def __init__(self, act=lambda _what: None):
        self.said = []
        self._act = act

    def __call__(self, done, total, what):
        self.said.append((done, total, what))
        self._act(what)


def quiet(*_):
    """Nobody listens."""
