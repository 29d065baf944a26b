"""Which seeds are simulated may be said; it reaches the tests, and no worker that they start."""

import os
import re
from pathlib import Path

import pytest
from simulated_seeds import COUNT, FIRST, NEW, USUAL_COUNT, USUAL_FIRST

ROOT = Path(__file__).parents[3]
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"


@pytest.mark.slow(3)
@pytest.mark.parametrize("spread", [(), ("-n", "1")])
def test_seeds_that_are_named_are_run_and_are_no_settings(pytester, monkeypatch, spread):
    pytester.makeconftest('pytest_plugins = ("simulated_seeds",)')
    pytester.makeini(INI)
    pytester.makepyfile(
        f"""
        import os

        def test_of_them(simulated_seeds):
            assert simulated_seeds == range(5, 8)
            assert not {{"{FIRST}", "{COUNT}"}} & os.environ.keys()
        """
    )
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}{os.pathsep}{ROOT}")
    monkeypatch.setenv(FIRST, "5")
    monkeypatch.setenv(COUNT, "3")
    run = pytester.runpytest_subprocess if spread else pytester.runpytest_inprocess
    done = run("-q", *spread)
    done.assert_outcomes(passed=1)
    assert any("simulated seeds 5 to 7" in line for line in done.outlines)


@pytest.mark.slow(3)
@pytest.mark.parametrize(("named", "is_usual"), [({}, True), ({FIRST: NEW}, False)])
def test_seeds_are_the_same_in_each_run_unless_new_ones_are_asked_for(
    pytester, monkeypatch, named, is_usual
):
    pytester.makeconftest('pytest_plugins = ("simulated_seeds",)')
    pytester.makeini(INI)
    pytester.makepyfile(
        f"""
        def test_of_them(simulated_seeds):
            usual = range({USUAL_FIRST}, {USUAL_FIRST + USUAL_COUNT})
            assert (simulated_seeds == usual) == {is_usual}
            assert len(simulated_seeds) == {USUAL_COUNT}
        """
    )
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}{os.pathsep}{ROOT}")
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    pytester.runpytest_inprocess("-q").assert_outcomes(passed=1)


def test_the_documentation_says_how_many_there_are_in_each_run():
    recipe = re.search(rf"{FIRST}=(\d+) {COUNT}=(\d+)", (ROOT / "Makefile").read_text())
    following, more = map(int, recipe.groups())
    last = USUAL_FIRST + USUAL_COUNT - 1
    assert following == last + 1
    assert USUAL_COUNT + more >= 120, "fewer find too little in CI's runs of a week"
    for page in ("docs/promises.md", "services/verify/simulation/README.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"`make test` runs seeds {USUAL_FIRST} to {last}" in text, page
        assert f"`make long` those up to {last + more}" in text, page
