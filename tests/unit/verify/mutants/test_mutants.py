"""Planted faults: enough of them, each by itself, and found by the checks."""

import re
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest

from deploy.docs.mutants import overview, page
from deploy.docs.places import TOP
from services.verify.mutants import trial
from services.verify.mutants.catalogue import MUTANTS
from services.verify.mutants.mutant import HELD_BY, Mutant, Promise
from services.verify.mutants.trial import broken_without, try_out
from services.verify.simulation.campaign import Verdict, judge, story_of, warm_up
from services.verify.simulation.plan import Scale, draw_plan
from services.verify.simulation.replacing import instead
from services.verify.simulation.run import simulate

MOST_SEEDS = 10

QUICK = (
    *("importance-left-out", "news-move-no-page", "parameters-unheard", "slots-left-empty"),
    *("signals-unheard", "repeated-for-too-long"),
    *("slots-filled-twice", "slots-begin-anew"),
    "more-than-was-set",
    *("a-token-too-many", "open-bounds-unheard"),
    *("read-on-one-record-later", "acknowledgements-not-waited-for"),
    *("crawl-records-in-a-transaction-of-their-own", "fence-left-out"),
    *("signal-of-before-the-crawl-counts", "crawls-by-arrival", "signals-by-arrival"),
    "removed-pages-stay",
    "waiting-without-polling",
    *("nobody-takes-over", "one-epoch-for-all-leaders", "read-on-from-the-end"),
    "letter-dropped",
    "picked-while-split",
)
"""Found by the first seed or two, whatever the seeds are; `make mutants` plants all of them."""

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}

ONE_OF_EACH = set({BY_NAME[name].promise: name for name in reversed(QUICK)}.values())
"""The first of each promise: `make test` plants these alone."""


def test_there_are_forty_and_three_for_each_promise():
    assert len(MUTANTS) >= 40
    found = Counter(mutant.promise for mutant in MUTANTS)
    assert {promise: found[promise] for promise in Promise if found[promise] < 3} == {}


def test_each_has_a_name_of_its_own_and_says_in_a_sentence_what_is_wrong():
    assert len(BY_NAME) == len(MUTANTS)
    for mutant in MUTANTS:
        assert re.fullmatch(r"[A-Z][^.]+\.", mutant.what), mutant.name


def places():
    """Our modules and the classes in them, and what all their attributes are."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith(("services.", "shared.")):
            found[name,] = module, dict(vars(module))
            for attribute, value in vars(module).items():
                if isinstance(value, type) and value.__module__ == name:
                    found[name, attribute] = value, dict(vars(value))
    return found


def moved(before):
    """The attributes that are other things now."""
    return {
        (*place, attribute)
        for place, (owner, attributes) in before.items()
        # Seldom any is: all of a class or module are compared at once.
        if [*map(id, vars(owner).values())] != [*map(id, attributes.values())]
        for attribute, value in attributes.items()
        if vars(owner).get(attribute) is not value
    }


@pytest.fixture(scope="module")
def before():
    """Nothing is planted; what a mutant's own plant loads besides is no place of a fault."""
    for mutant in MUTANTS:
        with mutant.plant():
            pass
    return places()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_planted_and_taken_out_again(before, mutant):
    with mutant.plant():
        planted = moved(before)
    assert planted, "nothing is other than before"
    assert not any(place[0].startswith("services.verify") for place in planted)
    assert moved(before) == set()


@pytest.fixture(scope="module")
def compiled():
    warm_up()


@pytest.mark.slow(1)
@pytest.mark.parametrize("name", sorted(ONE_OF_EACH))
def test_the_first_of_each_promise_is_found(compiled, monkeypatch, name):
    # That nothing is found without it, seeds show each time, and `make long` of each of these.
    monkeypatch.setattr(trial, "broken_without", lambda *_: frozenset())
    mutant = BY_NAME[name]
    found = try_out(mutant, range(MOST_SEEDS))
    assert set(found.caught_by) & set(HELD_BY[mutant.promise]), found.caught_by


@pytest.mark.long
@pytest.mark.slow(1)
@pytest.mark.parametrize("name", QUICK)
def test_it_is_found(compiled, name):
    mutant = BY_NAME[name]
    found = try_out(mutant, range(MOST_SEEDS))
    assert found.is_caught, f"not found within {MOST_SEEDS} seeds"
    assert set(found.caught_by) & set(HELD_BY[mutant.promise]), found.caught_by
    assert found.failed_without == ()


@pytest.mark.slow(1)
def test_the_checks_that_hold_promises_are_those_of_the_simulator(compiled):
    small = Scale(seconds=4.0, quiet_seconds=1.0, rest_seconds=1.0, kinds=())
    names = {finding.check for finding in simulate(draw_plan(0, small)).findings}
    held = {name for checks in HELD_BY.values() for name in checks}
    assert held == names


@contextmanager
def planted_nowhere():
    yield


def mutant_of(plant=planted_nowhere):
    return Mutant("mutant", Promise.LOST, "Nothing is wrong.", plant, Scale(kinds=()))


@contextmanager
def judged(monkeypatch, with_it, without=()):
    """Seeds are broken so, with a fault and without."""

    def fake(seed, _scale, plant=None):
        broken = tuple((without if plant is None else with_it).get(seed, ()))
        return Verdict(seed, "0", broken, tuple(f"{check}: so" for check in broken), {})

    broken_without.cache_clear()
    monkeypatch.setattr(trial, "judge", fake)
    yield
    broken_without.cache_clear()


def test_a_fault_is_found_by_the_first_seed_that_it_breaks(monkeypatch):
    with judged(monkeypatch, {2: ("rest", "pages")}, {}):
        found = try_out(mutant_of(), range(10))
    assert (found.caught_by, found.seeds, found.seed) == (("rest", "pages"), 3, 2)
    assert (found.example, found.failed_without) == ("rest: so", ())


def test_what_fails_without_the_fault_has_not_found_it(monkeypatch):
    with judged(monkeypatch, {0: ("rest",), 1: ("rest", "pages")}, {0: ("rest",), 1: ("rest",)}):
        found = try_out(mutant_of(), range(10))
    assert (found.caught_by, found.seeds, found.failed_without) == (("pages",), 2, (0, 1))


def test_seeds_come_to_an_end(monkeypatch):
    with judged(monkeypatch, {}, {}):
        found = try_out(mutant_of(), range(10))
    assert (found.is_caught, found.seeds, found.seed) == (False, 10, None)


def test_a_property_comes_back_as_one():
    class Worker:
        @property
        def name(self):
            return "worker"

    with instead(Worker, "name", "other"):
        assert Worker().name == "other"
    assert Worker().name == "worker"


def test_the_page_of_promises_shows_which_faults_its_checks_find():
    text = (TOP / "docs/promises.md").read_text(encoding="utf-8")
    assert overview() in text, f"the table is out of date; it should be:\n\n{overview()}"


def test_the_page_of_faults_has_every_one():
    text = page()
    for mutant in MUTANTS:
        assert f"| `{mutant.name}` | {mutant.what} |" in text


def judge_of(mutant, seed, scale):
    return judge(seed, scale, mutant.plant).broken


@pytest.mark.long
@pytest.mark.slow(10)
def test_the_story_names_the_fault_that_it_takes(compiled):
    mutant = BY_NAME["reading-on-beyond-the-end"]
    kinds = (*mutant.scale.kinds, "bandwidth", "duplicate", "kill")
    scale = replace(mutant.scale, kinds=kinds)
    # About every other seed breaks it; which one moves whenever a worker's loop does.
    seed = next(seed for seed in range(50) if judge_of(mutant, seed, scale))
    assert len(draw_plan(seed, scale).faults) > 1
    story = story_of(seed, scale, mutant.plant)
    [fault] = [line for line in story if " * " in line]
    assert "brokers lose records that they had acknowledged" in fault
    assert any(line.startswith("broken: ") for line in story)


@pytest.mark.slow(0.5)
def test_nothing_planted_nothing_found(compiled):
    assert judge(0, Scale(kinds=())).broken == ()
