"""`freshet replay` and `freshet figures` on small files."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from services.cli.commands import figures, replay
from services.replay.experiments.catalogue import FIGURES


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A small trace as CSV; the options that name it."""
    rng = np.random.default_rng(2)
    urls = [f"https://h{i % 3}.example/{i}" for i in range(30)]
    with (tmp_path / "pages.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["url", "importance"])
        rows.writerows([url, 1 + i % 5] for i, url in enumerate(urls))
    with (tmp_path / "events.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time_days", "url", "event", "source"])
        for day in np.sort(rng.random(200) * 20).tolist():
            url = urls[rng.integers(30)]
            rows.writerow([day, url, "change", ""])
            rows.writerow([day + 0.01, url, "signal", "webping"])
    return ["--pages", str(tmp_path / "pages.csv"), "--events", str(tmp_path / "events.csv")]


@pytest.mark.slow(4)
def test_replay_reports_policies_as_json_and_draws_them(files: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "freshness.svg"
    options = [*files, "--crawls-per-day", "5", "--policy", "freshet,nutch,LC", "--json"]
    options += ["--days", "20"]
    result = CliRunner().invoke(replay.command, [*options, "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert list(report["policies"]) == ["freshet", "nutch", "LC"]
    freshet = report["policies"]["freshet"]
    assert freshet["crawls"] == 100
    assert freshet["staleness"] + freshet["freshness"] == pytest.approx(1.0)
    assert freshet["parameters"]["learner"] == "production"
    assert sum(freshet["crawls_by_site"].values()) == 100
    assert report["code_version"]
    assert report["seed"] == 0
    assert picture.read_text().startswith("<?xml")
    assert CliRunner().invoke(replay.command, options).stdout == result.stdout


@pytest.mark.slow(5)
def test_replay_makes_a_table_under_a_scenario(files: list[str]) -> None:
    options = [*files, "--crawls-per-day", "5", "--policy", "uniform,GREEDY"]
    result = CliRunner().invoke(replay.command, [*options, "--scenario", "spam", "--oracle"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["policy", "staleness"]
    assert {line.split()[0] for line in lines[1:]} == {"uniform", "GREEDY"}


@pytest.mark.slow(8)
def test_replay_tells_the_middle_of_signals_as_they_come_and_the_range(files: list[str]) -> None:
    options = [*files, "--crawls-per-day", "5", "--scenario", "as-they-come"]
    result = CliRunner().invoke(replay.command, [*options, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    peers = ["nutch-tuned", "nutch-at-best", "software-heritage-at-best"]
    assert [row["policy"] for row in report["summary"]] == peers
    for row in report["summary"]:
        assert row["least"] <= row["middle"] <= row["most"]
    assert {row["scenario"] for row in report["scenarios"]} >= {"as-recorded", "polled"}
    options += ["--policy", "freshet-no-signals,uniform"]
    lines = CliRunner().invoke(replay.command, options).stdout.splitlines()
    assert lines[0].split() == ["scenario", "draw", "policy", "staleness", "times"]
    assert lines[-2].split() == ["policy", "middle", "least", "most"]
    result = CliRunner().invoke(replay.command, [*options[:-1], "LC"])
    assert result.exit_code == 2
    assert "freshet and the schedules are compared alone" in result.output


def test_replay_counts_requests_that_find_a_fresh_copy(files: list[str]) -> None:
    events = Path(files[3])
    rng = np.random.default_rng(5)
    rows = [
        f"{day},https://h{p % 3}.example/{p},request,\n"
        for day, p in zip(
            (rng.random(300) * 20).tolist(), rng.integers(30, size=300).tolist(), strict=True
        )
    ]
    events.write_text(events.read_text() + "".join(rows))
    options = [*files, "--crawls-per-day", "5", "--policy", "freshet,uniform"]
    result = CliRunner().invoke(replay.command, [*options, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["requests"] == 300
    shares = {name: found["fresh_request_share"] for name, found in report["policies"].items()}
    assert 0 < shares["uniform"] < shares["freshet"] < 1
    assert "fresh request share" in CliRunner().invoke(replay.command, options).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--crawls-per-day", "5", "--policy", "best"], "there is no policy 'best'"),
        (["--crawls-per-day", "5", "--plot", "picture.pdf"], "ends in .svg or .png"),
        (["--crawls-per-day", "0"], "0"),
        (["--crawls-per-day", "5", "--scenario", "storm"], "storm"),
    ],
)
def test_replay_says_what_is_wrong(files: list[str], options: list[str], said: str) -> None:
    result = CliRunner().invoke(replay.command, [*files, *options])
    assert result.exit_code == 2
    assert said in result.output


def test_a_figure_is_a_picture_and_numbers_with_errors(tmp_path: Path) -> None:
    options = ["k1", "--repetitions", "2", "--pages", "200", "--out", str(tmp_path)]
    result = CliRunner().invoke(figures.command, options)
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "k1.json").read_text())
    costs = numbers["series"]["harmonic cost"]
    assert costs["x"] == ["LC", "LCA", "BLCε", "BLC", "CC", "UC"]
    assert costs["mean"][3] is None
    assert costs["mean"][0] == min(cost for cost in costs["mean"] if cost is not None)
    assert costs["standard_error"][0] > 0
    assert (tmp_path / "k1.svg").exists()


def test_an_unknown_figure_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(figures.command, ["n6", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert all(name in result.output for name in FIGURES)


def test_figures_of_a_dataset_in_its_published_format(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    crawls = [[[1.0, int(rng.random() < 0.4)] for _ in range(14)] for _ in range(60)]
    files = {
        "urlid_imp.txt": [f"{i}\t{rng.integers(1, 900)}" for i in range(60)],
        "urlid_offset_history.txt": [f"{i}\t0.5\t{json.dumps(c)}" for i, c in enumerate(crawls)],
        "urlid_chrate_compl_obs_hist.txt": [f"{i}\t0.4" for i in range(0, 60, 5)],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    options = ["k1", "k2", "k3", "--repetitions", "2", "--pages", "50", "--out", str(tmp_path)]
    result = CliRunner().invoke(figures.command, [*options, "--polite-crawling", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for name in ("k1", "k2", "k3"):
        numbers = json.loads((tmp_path / f"{name}.json").read_text())
        assert numbers["notes"] == "50 pages drawn from 60 of the dataset PoliteCrawling"
    heeding, deaf = json.loads((tmp_path / "k2.json").read_text())["series"]["harmonic cost"][
        "mean"
    ][:2]
    assert heeding < deaf
    (tmp_path / "urlid_imp.txt").unlink()
    result = CliRunner().invoke(figures.command, [*options, "--polite-crawling", str(tmp_path)])
    assert result.exit_code == 2
    assert "urlid_imp.txt: there is no such file" in result.output
