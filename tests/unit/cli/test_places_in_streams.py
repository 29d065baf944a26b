"""Where a consumer stands in a stream: what is left to read, and what going on costs."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from services.cli import positions
from services.cli.main import main
from services.cli.positions import Place


def place(position, log_start=100, log_end=200, topic_id=None, known_id=None):
    return Place("estimator", "page-updates", 3, position, log_start, log_end, topic_id, known_id)


@pytest.mark.parametrize(
    ("position", "lag"),
    [(150, 50), (200, 0), (None, 100), (40, 100), (250, 0)],
    ids=["amid", "at the end", "never read", "behind a gap", "beyond the end"],
)
def test_the_lag_is_what_is_there_to_be_read(position, lag):
    assert place(position).lag == lag


@pytest.mark.parametrize(
    ("stands", "state"),
    [
        (place(None), "ok"),
        (place(100), "ok"),
        (place(200), "ok"),
        (place(99), "gap"),
        (place(201), "beyond end"),
        (place(150, topic_id="new", known_id="old"), "other topic"),
        (place(None, topic_id="new", known_id="old"), "other topic"),
        (place(150, topic_id="same", known_id="same"), "ok"),
        # Brokers that give topics no ids, and positions of before they were noted.
        (place(150, topic_id="new"), "ok"),
        (place(150, known_id="old"), "ok"),
    ],
)
def test_a_worker_goes_on_where_the_log_continues_what_it_has_read(stands, state):
    assert stands.state == state


@pytest.mark.parametrize(
    ("stands", "at_start", "at_end"),
    [
        (place(99), (100, "99 to 99 are gone"), (100, "99 to 99 are gone")),
        (
            place(250),
            (100, "nothing: 100 to 199 are read again"),
            (200, "100 to 199 are never read"),
        ),
        (place(250, log_end=100), (100, "nothing is there"), (100, "nothing is there")),
        (
            place(150, topic_id="new", known_id="old"),
            (100, "nothing: 100 to 199 are read again"),
            (200, "100 to 199 are never read"),
        ),
    ],
    ids=["gap", "beyond end", "empty", "other topic"],
)
def test_who_settles_is_told_what_that_costs(stands, at_start, at_end):
    assert (stands.settled_at("start"), stands.given_up("start")) == at_start
    assert (stands.settled_at("end"), stands.given_up("end")) == at_end


def in_partition(number, position, **ids):
    return replace(place(position, **ids), partition=number)


@pytest.fixture
def settled(monkeypatch):
    """Runs `freshet positions settle` over three partitions, two of them broken: the result, and
    what is settled."""

    def invoke(*arguments, answer="", **ids):
        done = []
        there = [in_partition(0, 150), in_partition(1, 250, **ids), in_partition(2, 99)]

        async def places(_settings):
            return there, {}

        async def settle(_settings, chosen, at):
            done.extend((one.partition, at) for one in chosen)

        monkeypatch.setattr(positions, "places", places)
        monkeypatch.setattr(positions, "settle", settle)
        command = ["positions", "settle", "--topic", "page-updates", *arguments]
        return CliRunner().invoke(main, command, input=answer), done

    return invoke


def test_only_what_is_broken_is_settled_and_of_it_only_what_was_named(settled):
    result, done = settled("--yes")
    assert (result.exit_code, done) == (0, [(1, "start"), (2, "start")])
    assert "2 partitions settled" in result.stdout
    assert settled("--partition", "1", "--at", "end", "--yes")[1] == [(1, "end")]
    result, done = settled("--partition", "0", "--yes")
    assert (result.exit_code, done) == (0, [])
    assert "nothing to settle" in result.stdout


def test_what_it_costs_is_shown_before_somebody_agrees(settled):
    result, done = settled("--at", "end", answer="n\n")
    assert result.exit_code != 0
    assert "100 to 199 are never read" in result.stdout
    assert done == []
    assert settled("--at", "end", answer="y\n")[1] == [(1, "end"), (2, "end")]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--partition", "1"), "a topic that was made anew is settled as a whole"),
        (("--partition", "9"), "page-updates has no partition 9"),
        (("--topic", "nonsense"), "'nonsense' is none of page-updates"),
    ],
)
def test_what_cannot_be_settled_so_is_left_as_it_is(settled, arguments, reason):
    result, done = settled(*arguments, "--yes", topic_id="new", known_id="old")
    assert result.exit_code == 2
    assert reason in result.stderr
    assert done == []
