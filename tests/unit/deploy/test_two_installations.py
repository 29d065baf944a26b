"""One Prometheus may watch several releases of the chart: each one's rules see its namespace."""

import json
import re

import pytest
import yaml
from alert_trials import CASES, TOP, alerts, evaluate, trial
from rendered_chart import CHART, helm

HERE, THERE = "here", "there"

DASHBOARDS = ["freshet", "workers"]


def rules_of(namespace, folder):
    """The file of rules that a Prometheus gets of a release."""
    shown = ["--set", "monitoring.rules.enabled=true", "--show-only", "templates/monitoring.yaml"]
    done = helm("template", "freshet", str(CHART), "-n", namespace, *shown)
    assert done.returncode == 0, done.stderr
    file = folder / f"{namespace}.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(done.stdout)["spec"]))
    return file


def within(namespace, series):
    """The same series as of a release's pods."""
    return {
        name.replace("{", f'{{namespace="{namespace}", ', 1): values
        for name, values in series.items()
    }


def both_trials(case):
    """Well in both, and ill in one of them: there it fires, and once."""
    ill = case["well"] | case["ill"]
    yield trial(case, within(HERE, case["well"]) | within(THERE, case["well"]), firing=False)
    case = case | {"labels": case["labels"] | {"namespace": HERE}}
    yield trial(case, within(HERE, ill) | within(THERE, case["well"]), firing=True)


@pytest.mark.slow(12)
@pytest.mark.long
def test_each_release_is_told_of_what_is_wrong_with_it_and_of_nothing_else(tmp_path):
    files = [rules_of(namespace, tmp_path) for namespace in (HERE, THERE)]
    trials = [each for case in CASES for each in both_trials(case)]
    done = evaluate(tmp_path, trials, *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_release_that_is_gone_as_a_whole_is_missed(tmp_path):
    files = [rules_of(namespace, tmp_path) for namespace in (HERE, THERE)]
    case = next(case for case in CASES if case["alert"] == "FreshetNobodyLeads")
    case = case | {"labels": {"namespace": HERE}}
    done = evaluate(tmp_path, [trial(case, within(THERE, case["well"]), firing=True)], *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_the_projects_but_for_the_namespace(tmp_path):
    given = yaml.safe_load(rules_of(HERE, tmp_path).read_text())["groups"]
    for group in given:
        for rule in group["rules"]:
            assert rule["labels"].pop("namespace") == HERE
            assert len(re.findall(r"freshet[_:]|process_|\bup\b", rule["expr"])) == rule[
                "expr"
            ].count(f'{{namespace="{HERE}"')
            rule["expr"] = re.sub(rf'namespace="{HERE}"(, )?', "", rule["expr"]).replace("{}", "")
    assert given == yaml.safe_load((TOP / "deploy/prometheus/alerts.yml").read_text())["groups"]
    assert {r["alert"] for g in given for r in g["rules"] if "alert" in r} == set(alerts())


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_shows_one_namespace_or_all(name):
    board = json.loads((TOP / f"deploy/grafana/{name}.json").read_text())
    [variable] = [v for v in board["templating"]["list"] if v["name"] == "namespace"]
    assert variable["allValue"] == ".*", "also where there is none"
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            named = re.findall(r"\b(?:freshet|process)_\w+", target["expr"])
            assert target["expr"].count('{namespace=~"$namespace"') == len(named)
