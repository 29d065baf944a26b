"""Trials of the alerts: promtool evaluates the rules over the series of `alert_cases.yml`."""

import subprocess
from pathlib import Path

import yaml
from tools import need_tool

TOP = Path(__file__).parents[3]
RULES = TOP / "deploy/prometheus/alerts.yml"
CASES = yaml.safe_load((Path(__file__).parent / "alert_cases.yml").read_text())


def rules():
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def trial(case, series, firing):
    """A test of promtool's: whether the alert of a case fires over these series."""
    labels = {
        "alertname": case["alert"],
        "alertstate": "firing",
        "severity": alerts()[case["alert"]]["labels"]["severity"],
    } | case["labels"]
    shown = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    expected = [{"labels": f"ALERTS{{{shown}}}", "value": 1}] if firing else []
    return {
        "name": f"{case['alert']} {'fires' if firing else 'is silent'}",
        "interval": case.get("step", "30s"),
        "input_series": [{"series": s, "values": values} for s, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case["alert"]}", alertstate="firing"}}',
                "eval_time": case["at"],
                "exp_samples": expected,
            }
        ],
    }


def evaluate(folder, tests, *rules_files):
    """What promtool says of tests: each evaluates its alert's group, at its own interval, of all
    files of rules together."""
    files = []
    read = [yaml.safe_load(file.read_text())["groups"] for file in rules_files or (RULES,)]
    for number, groups in enumerate(zip(*read, strict=True)):
        rule_files = []
        for place, group in enumerate(groups):
            rule_files.append(str(folder / f"rules-{number}-{place}.yml"))
            Path(rule_files[-1]).write_text(yaml.safe_dump({"groups": [group]}))
        named = {rule.get("alert") for rule in groups[0]["rules"]}
        ours = [test for test in tests if test["name"].partition(" ")[0] in named]
        for step in sorted({test["interval"] for test in ours}):
            document = {
                "rule_files": rule_files,
                "evaluation_interval": step,
                "tests": [test for test in ours if test["interval"] == step],
            }
            files.append(str(folder / f"tests-{number}-{step}.yml"))
            Path(files[-1]).write_text(yaml.safe_dump(document, sort_keys=False))
    return subprocess.run(
        [need_tool("promtool"), "test", "rules", *files],
        capture_output=True,
        text=True,
        check=False,
    )
