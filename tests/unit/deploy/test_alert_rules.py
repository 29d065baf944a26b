"""Every alert fires when it should, and not when all is well: promtool evaluates the rules."""

import re
import subprocess

import pytest
import yaml
from alert_trials import CASES, RULES, TOP, alerts, evaluate, rules, trial
from tools import need_tool

VALUES = yaml.safe_load((TOP / "deploy/chart/values.yaml").read_text())
NEEDED = [name for name, worker in VALUES["workers"].items() if worker["enabled"]]
"""Workers without which there is no Freshet: the chart has all others off."""


def trials():
    for case in CASES:
        yield trial(case, case["well"], firing=False)
        yield trial(case, case["well"] | case["ill"], firing=True)


@pytest.mark.slow(6)
def test_alerts_fire_when_something_is_wrong_and_only_then(tmp_path):
    done = evaluate(tmp_path, list(trials()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_that_does_not_fire_is_found(tmp_path):
    broken = RULES.read_text().replace('up{job=~"freshet-.*"} == 0', 'up{job=~"freshet-.*"} == 2')
    (tmp_path / "rules.yml").write_text(broken)
    case = next(case for case in CASES if case["alert"] == "FreshetWorkerDown")
    ill = trial(case, case["well"] | case["ill"], firing=True)
    assert evaluate(tmp_path, [ill], tmp_path / "rules.yml").returncode != 0
    assert evaluate(tmp_path, [ill]).returncode == 0


@pytest.mark.parametrize("values", ["_x20", "1 1 stale"])
def test_each_kind_of_worker_that_is_needed_is_missed_where_none_is_known(tmp_path, values):
    case = next(case for case in CASES if case["alert"] == "FreshetWorkerDown")
    jobs = [f"freshet-{name}" for name in NEEDED]
    missing = [
        trial(
            case | {"labels": {"job": job}},
            {series: values if job in series else given for series, given in case["well"].items()},
            firing=True,
        )
        for job in jobs
    ]
    done = evaluate(tmp_path, missing)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_look_at_schedulers_wakes_nobody(tmp_path):
    """It says nothing yet of how fast they are."""
    case = next(case for case in CASES if case["labels"] == {"objective": "budget"})
    first = trial(case | {"at": "0m"}, case["well"], firing=False)
    done = evaluate(tmp_path, [first])
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_rules():
    done = subprocess.run(
        [need_tool("promtool"), "check", "rules", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case():
    assert {case["alert"] for case in CASES} == set(alerts())


def test_every_objective_is_measured_over_every_window_that_an_alert_looks_at():
    found = {(rule["labels"]["objective"], rule["record"]) for rule in rules() if "record" in rule}
    objectives = {name for name, record in found if record == "freshet:objective"}
    windows = {record for _, record in found if record != "freshet:objective"}
    assert objectives == {"decisions", "budget", "applied"}
    assert {(o, w) for o in objectives for w in windows} <= found
    used = set()
    for name in ("FreshetObjectiveFailing", "FreshetObjectiveEroding"):
        used |= set(re.findall(r"freshet:errors:ratio\w+", alerts()[name]["expr"]))
    assert used == windows
    for rule in rules():
        if (window := rule.get("record", "").partition("ratio")[2]) != "":
            assert set(re.findall(r"\[(\w+)(?::\w+)?\]", rule["expr"])) == {window}
