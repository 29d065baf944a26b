"""`freshet replay` and `freshet figures`: what they cannot do is said before it costs time."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from services.cli.main import main
from services.replay.policies import POLICIES, knows_limits

PAGES = "url,importance\n" + "".join(f"https://{h}.example/{n},1\n" for h in "abc" for n in "123")
EVENTS = "time_days,url,event,source\n"
CHANGE = "{},https://a.example/1,change,\n"


def replayed(folder: Path, events: str, *arguments: str) -> Result:
    (folder / "pages.csv").write_text(PAGES)
    (folder / "events.csv").write_text(EVENTS + events)
    files = ["--pages", str(folder / "pages.csv"), "--events", str(folder / "events.csv")]
    budget = [] if "--crawls-per-day" in arguments else ["--crawls-per-day", "2"]
    return CliRunner().invoke(main, ["replay", *files, *budget, *arguments])


@pytest.mark.parametrize(
    ("when", "arguments", "told"),
    [
        # Unix seconds, and milliseconds.
        (
            "1700000000",
            (),
            "row 1, column time_days: 1700000000.0 is beyond 100000: times are days",
        ),
        ("1700000000123", ("--days", "5"), "times are days since the beginning"),
        ("5", ("--days", "1e9"), "a trace of 1e+09 days is too long: 100000 at most"),
        ("5", ("--crawls-per-day", "1e12"), "5e+12 crawls in 5 days are more than can be replayed"),
        ("0", (), "nothing happens after day 0: give --days"),
        ("-1", (), "row 1, column time_days: -1.0 is not a number of at least 0"),
    ],
)
def test_times_and_budgets_that_nobody_can_mean_are_refused(
    tmp_path: Path, when: str, arguments: tuple[str, ...], told: str
) -> None:
    refused = replayed(tmp_path, CHANGE.format(when), *arguments)
    assert refused.exit_code == 2, refused.output
    assert told in refused.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--scenario", "polled", "--plot", "x.svg"), "--plot has no effect with"),
        (("--scenario", "polled", "--policy", "nutch"), "--policy has no effect with"),
        (("--scenario", "as-they-come", "--plot", "x.svg"), "--plot has no effect with"),
        (("--scenario", "as-they-come", "--oracle"), "--oracle has no effect with"),
        (("--poll-every", "3"), "--poll-every has no effect without --scenario polled"),
        (("--scenario", "noise", "--source-per", "site"), "--source-per has no effect with"),
    ],
)
def test_an_option_that_a_scenario_does_not_heed_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    refused = replayed(tmp_path, CHANGE.format(5), *arguments)
    assert refused.exit_code == 2, refused.output
    assert told in refused.output


def test_all_policies_are_those_that_know_of_limits_where_hosts_have_some(tmp_path: Path) -> None:
    shown = replayed(
        tmp_path, CHANGE.format(3), "--scenario", "host-limits", "--policy", "all", "--json"
    )
    assert shown.exit_code == 0, shown.output
    for name in POLICIES:
        assert (f'"{name}": {{' in shown.stdout) == knows_limits(name), name


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(main, ["figures", "k1", "--out", str(tmp_path / "file" / "in")])
    assert refused.exit_code == 2, refused.output
    assert f"--out {tmp_path / 'file' / 'in'}: no folder can be made there" in refused.output
