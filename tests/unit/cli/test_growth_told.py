"""What a growth says of a scheduler that is asked to stop: no alarm before it has had a moment."""

import pytest

from shared.contracts.databases import Databases
from shared.contracts.layout import Layout
from shared.store import splitting
from shared.store.splits import Split, SplitState

SILENT = "or no scheduler is running"


@pytest.fixture
def says(monkeypatch):
    """A function: seconds since the shard was asked for → what is said while it is not held."""
    databases = Databases.alone("postgresql://a/pages")
    layouts = {databases.home: Layout(8, 4, frozenset())}
    asked = Split(SplitState.ASKED, is_current=True, split_at=None, claim=None)
    monkeypatch.setattr(splitting, "read_splits", lambda _, parents: dict.fromkeys(parents, asked))
    monkeypatch.setattr(splitting, "without_scheduler", lambda *_: [])
    monkeypatch.setattr(splitting, "ask", lambda *_: None)
    now = [100.0]
    monkeypatch.setattr(splitting.time, "monotonic", lambda: now[0])

    def after(*seconds):
        said = []

        def told(_done, _total, what):
            said.append(what)

        splitter = splitting._Splitter(databases, layouts, told, 300.0, unattended=False)
        patience = splitting._Patience(300.0)
        for more in seconds:
            now[0] += more
            assert not splitter._is_held(None, 0, patience)
        return said

    return after


def test_a_scheduler_that_was_asked_a_moment_ago_is_not_said_to_be_missing(says):
    assert not any(SILENT in what for what in says(0.0, 0.2, 2.0))


def test_one_that_does_not_stop_is_said_to_wait_or_to_be_missing(says):
    first, last = says(0.0, splitting.SILENT_SECONDS)
    assert SILENT not in first
    assert SILENT in last


def test_the_wait_for_other_schedulers_before_does_not_count(says):
    assert not any(SILENT in what for what in says(200.0, 1.0))
