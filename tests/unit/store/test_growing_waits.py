"""Before the first shard is split, crawlers have had time to learn of the new partitions."""

from types import SimpleNamespace

import pytest

from shared.contracts.layout import Layout
from shared.store import splitting


@pytest.fixture
def waited(monkeypatch):
    """Seconds that were slept, on a clock of their own."""
    slept = []
    monkeypatch.setattr(
        splitting, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    )
    return slept


def test_it_waits_and_says_what_for(waited):
    said = []
    splitting.let_be_known(Layout(8, 2, frozenset()), lambda *what: said.append(what), 25.0)
    assert sum(waited) == 25.0
    assert [what[:2] for what in said] == [(0, 2)] * 3
    assert said[0][2] == "crawlers learn of the new partitions: 25 s more"


def test_a_growth_that_goes_on_does_not_wait_again(waited):
    splitting.let_be_known(Layout(8, 2, frozenset({1})), lambda *_: None, 25.0)
    assert waited == []
