"""A third of the examples is tried each time, all of them where it is asked for."""

import os
from pathlib import Path

import pytest
from examples import fewer, some

ROOT = Path(__file__).parents[3]
TESTS = """
    import pytest
    from hypothesis import given, settings, strategies

    tried = []

    @settings(max_examples=90, database=None)
    @given(number=strategies.integers())
    @pytest.mark.parametrize("name", ["one", "other"])
    def test_of_each(name, number): tried.append(name)

    @pytest.mark.long
    @settings(max_examples=90, database=None)
    @given(strategies.integers())
    def test_long(number): tried.append("long")

    class TestMany:
        @settings(max_examples=90, database=None)
        @given(strategies.integers())
        def test_of_a_class(self, number): tried.append("class")

    def test_plain():
        print({name: tried.count(name) for name in ("one", "other", "long", "class")})
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"one": 30, "other": 30, "long": 90, "class": 30}),
        (("--all-examples",), {"one": 90, "other": 90, "long": 90, "class": 90}),
    ],
)
def test_long_tests_try_all_and_others_a_part_unless_it_is_asked_for(
    pytester, monkeypatch, options, expected
):
    pytester.makeconftest('pytest_plugins = ("examples",)')
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n"
        "    examples\n    long\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}{os.pathsep}{ROOT}")
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-s", *options)
    done.assert_outcomes(passed=5)
    assert str(expected) in done.stdout.str()
    marked = pytester.runpytest_inprocess("-m", "examples")
    marked.assert_outcomes(passed=4, deselected=1)


def test_few_are_all_tried():
    assert [fewer(number) for number in (10, 25, 30, 60, 90)] == [10, 25, 25, 25, 30]


def test_make_long_asks_for_all():
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "long or" in line]
    assert '--all-examples -m "long or seeds or examples"' in line


def test_of_what_repeats_itself_the_first_run_each_time_and_the_others_with_make_long():
    found = some([1, 2, (3, 4)], 1)
    assert [param.values for param in found] == [(1,), (2,), (3, 4)]
    assert [[mark.name for mark in param.marks] for param in found] == [[], ["long"], ["long"]]
