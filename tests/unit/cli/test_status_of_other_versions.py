"""`freshet status` at a coordinator that tells less, or other things, than ours."""

import copy

import msgspec
import pytest
from click.testing import CliRunner

from services.cli.commands import status
from services.coordinator.core import Coordination, Moment
from services.coordinator.picture import Picture
from shared.contracts.messages import Bandwidth

ADDRESS = "http://coordinator:6069"
NAMES = list(status._SAYINGS)
STORE = {
    "pages": {},
    "hosts": {},
    "bytes": 0,
    "shards": 4,
    "positions": {},
    "max_ages": {},
}


@pytest.fixture(scope="module")
def picture():
    """All that a coordinator of this version tells."""
    coordination = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    coordination.lead(3, "one")
    coordination.receive_bandwidth(Bandwidth(7.0))
    state = Picture(coordination).state(Moment(clock=1e9, wall=100.0), 5.0, "one")
    told = msgspec.to_builtins(state)
    told["default_groups"] = {"crawls_per_second": 1.0, "divided": 2}
    told["reasons"] = [{"reason": "new", "crawls_per_second": 1.0, "kept": 0.2}]
    told["classes"] = [
        {"page_class": "a", "pages": 3, "crawls_per_second": 1.0, "kept": 0.0, "weight": 2.0}
    ]
    told["notice"] = "look here"
    return told


def names_of(lines):
    return [line.split()[0] for line in lines]


def test_of_this_version_everything_is_told(picture):
    assert names_of(status._told(picture, ADDRESS)) == NAMES


@pytest.mark.parametrize("other", [None, "x", [], {}, 7, [{}], "missing"])
def test_what_is_missing_or_otherwise_is_named_and_the_rest_is_told(picture, other):
    places = [(name,) for name in picture] + [("now", name) for name in picture["now"]]
    for place in places:
        changed = copy.deepcopy(picture)
        within = changed if len(place) == 1 else changed["now"]
        if other == "missing":
            del within[place[-1]]
        else:
            within[place[-1]] = other
        *lines, last = status._told(changed, ADDRESS)
        told = names_of(lines)
        if last.startswith("not told"):
            missing = last.partition(": ")[0].removeprefix("not told   ").split(", ")
            assert ADDRESS in last
            assert not set(told) & set(missing)
        if place != ("now",):
            assert len(told) >= len(NAMES) - 4


def test_a_picture_of_nothing_is_said_to_be_that(picture):
    (line,) = status._told({}, ADDRESS)[-1:]
    assert "another version" in line
    assert status._bandwidth({}) is status._bandwidth(None) is None
    assert status._bandwidth({"now": [1]}) is status._bandwidth({"now": {"bandwidth": "x"}}) is None
    assert status._bandwidth(picture) == 7.0


@pytest.mark.parametrize("left", ["achieved_ratio", "fleet_capacity", "unused", "bandwidth"])
def test_the_command_ends_well(picture, monkeypatch, left):
    older = copy.deepcopy(picture)
    del older["now"][left]
    monkeypatch.setattr("shared.runtime.asking.ask", lambda *_: older)
    monkeypatch.setattr("shared.store.status.stores_status", lambda *_: (dict(STORE), {}))
    result = CliRunner().invoke(status.command, [], catch_exceptions=False)
    assert result.exit_code == 0
    assert "another version" in result.output
    assert "leader     one" in result.output
