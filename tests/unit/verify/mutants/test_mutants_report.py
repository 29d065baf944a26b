"""What `freshet verify --mutants` says, and when it fails."""

import json

import pytest
from click.testing import CliRunner

from services.cli.commands.verify import command
from services.verify.mutants import campaign as campaigns
from services.verify.mutants.mutant import Mutant, Promise
from services.verify.mutants.trial import Trial
from services.verify.simulation.plan import Scale


def trial_of(name, *caught_by, failed_without=()):
    mutant = Mutant(name, Promise.LOST, f"{name} is wrong.", lambda: None, Scale())
    seed = 3 if caught_by else None
    return Trial(mutant, caught_by, 4, seed, "", failed_without)


@pytest.fixture
def run(monkeypatch):
    """The command, where these became of the faults."""

    def with_trials(*trials):
        monkeypatch.setattr(campaigns, "try_all", lambda _mutants, _seeds: iter(trials))
        return CliRunner().invoke(command, ["--mutants", "--json"])

    return with_trials


def test_all_are_found(run):
    done = run(trial_of("first", "rest", "pages"), trial_of("other", "memory"))
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert (report["mutants"], report["caught"], report["passed"]) == (2, 2, True)
    assert report["each"][0]["caught_by"] == ["rest", "pages"]
    assert report["each"][0]["promise"] == "Nothing is lost"
    assert "first: rest, pages (4 seeds)" in done.stderr


def test_one_that_nothing_finds_is_named_and_fails(run):
    done = run(trial_of("first", "rest"), trial_of("other"))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["caught"] == 1
    assert "other: NOT CAUGHT in 4 seeds: other is wrong." in done.stderr


def test_seeds_that_fail_without_a_fault_show_nothing(run):
    done = run(trial_of("first", "rest", failed_without=(2,)))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["failed_without"] == [2]
    assert "first: seeds [2] fail without it too" in done.stderr


def test_faults_of_the_surroundings_are_not_its_to_choose():
    done = CliRunner().invoke(command, ["--mutants", "--simulate"])
    assert done.exit_code != 0
    assert "leave --simulate out" in str(done.exception) + done.output
