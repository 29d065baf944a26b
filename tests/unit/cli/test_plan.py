"""`freshet plan`: its values are the chart's, its coefficients can be replaced."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from services.cli.main import main
from services.plan.coefficients import KNOWN, read_measured, write_measured

CHART = Path(__file__).parents[3] / "deploy/chart"
BILLION = ("--pages", "1e9", "--crawls-per-second", "1e4")


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


def merged(values, planned):
    """As Helm merges values: what is planned over what stands."""
    both = isinstance(values, dict) and isinstance(planned, dict)
    if not both:
        return planned
    return values | {name: merged(values.get(name), planned[name]) for name in planned}


@pytest.mark.parametrize("pages", ["1", "1e6", "1e9"])
def test_the_values_are_the_charts(pages):
    shown = run("--pages", pages, "--crawls-per-second", "1e4", "--values")
    assert shown.exit_code == 0, shown.output
    planned = yaml.safe_load(shown.stdout)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, worker in planned["workers"].items():
        assert worker["replicas"] >= 2
        assert name in values["workers"]
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(merged(values, planned), schema)


def test_settings_that_the_sizes_hold_with_are_among_the_values(monkeypatch):
    assert "settings" not in json.loads(run(*BILLION, "--json").stdout)["values"]
    monkeypatch.setenv("FRESHET_ESTIMATOR_RESIDENT_PAGES", "100000")
    monkeypatch.setenv("FRESHET_OBSERVATIONS_KEPT_DAYS", "30")
    planned = yaml.safe_load(run(*BILLION, "--values").stdout)
    assert planned["settings"] == {
        "FRESHET_OBSERVATIONS_KEPT_DAYS": 30.0,
        "FRESHET_ESTIMATOR_RESIDENT_PAGES": 100_000,
    }
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(merged(values, planned), schema)


def test_all_ways_to_answer_say_the_same():
    answer = json.loads(run(*BILLION, "--json").stdout)
    assert yaml.safe_load(run(*BILLION, "--values").stdout) == answer["values"]
    shown = run(*BILLION).stdout
    text = shown.partition("# values.yaml\n")[2].partition("Added up from")[0]
    assert yaml.safe_load(text) == answer["values"]
    for worker, size in answer["workers"].items():
        [line] = [line for line in shown.splitlines() if line.startswith(f"{worker} ")]
        assert line.split()[1] == str(size["replicas"])
    assert set(answer["kafka"]["topics"]) <= {line.split(" ")[0] for line in shown.splitlines()}


def test_the_plan_names_what_it_was_added_up_from():
    answer = json.loads(run(*BILLION, "--json").stdout)
    assert [item["name"] for item in answer["coefficients"]] == list(KNOWN)
    shown, in_full = run(*BILLION).stdout, run(*BILLION, "--coefficients").stdout
    for item in answer["coefficients"]:
        assert item["command"] in shown
        [line] = [line for line in in_full.splitlines() if line.startswith(f"{item['name']} ")]
        for said in (item["what"], item["command"], item["date"], item["commit"]):
            assert said in line


def test_coefficients_of_ones_own_count(tmp_path):
    as_measured = json.loads(run(*BILLION, "--json").stdout)
    measured = {item["name"]: item["value"] for item in as_measured["coefficients"]}
    half = measured["scheduler_page_bytes"] / 2
    own = json.loads(
        run(*BILLION, "--coefficient", f"scheduler_page_bytes={half}", "--json").stdout
    )
    assert own["workers"]["scheduler"]["replicas"] < as_measured["workers"]["scheduler"]["replicas"]
    [said] = [item for item in own["coefficients"] if item["name"] == "scheduler_page_bytes"]
    assert (said["value"], said["command"], said["commit"]) == (half, "--coefficient", None)
    for wrong in ("scheduler_page_bytes", "no_such=1", "scheduler_page_bytes=-1"):
        assert run(*BILLION, "--coefficient", wrong).exit_code == 2

    file = tmp_path / "measured.yml"
    shipped = read_measured()["scheduler_page_bytes"]
    write_measured(file, {"scheduler_page_bytes": type(shipped)(shipped.name, half, shipped.run)})
    of_file = json.loads(run(*BILLION, "--measured", str(file), "--json").stdout)
    assert of_file["workers"] == own["workers"]
    assert run(*BILLION, "--measured", str(tmp_path / "gone.yml")).exit_code == 2


def test_what_does_not_fit_is_said():
    refused = run("--pages", "1e11", "--crawls-per-second", "1")
    assert refused.exit_code == 2
    assert "1.6384e+10 of one installation" in refused.output
    assert "--pages" in refused.output
    assert "--memory" in run(*BILLION, "--memory", "0.5").output


def test_more_hosts_days_and_copies_are_more_disk():
    def disk(*arguments):
        answer = json.loads(run(*BILLION, *arguments, "--json").stdout)
        return answer["postgres"]["disk_bytes"]["hosts"], answer["kafka"]["disk_bytes"]

    hosts, kafka = disk()
    assert disk("--hosts", "1e9")[0] > hosts
    assert disk("--retention-days", "30")[1] > kafka
    assert disk("--copies", "4")[1] > kafka
