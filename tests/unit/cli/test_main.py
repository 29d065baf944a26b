"""The command line: every command's help, fast start, and one clear line for every user's error."""

import json
import socket
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from services.cli.main import COMMANDS, main
from shared.store.patience import DATABASE_PATIENCE


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*arguments: str):
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    return invoke


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(run, name: str) -> None:
    result = run(name, "--help")

    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "contract"])
def test_help_shows_an_example(run, name: str) -> None:
    assert f"freshet {name}" in run(name, "--help").output


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = (
        "import sys; from services.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'aiokafka', 'psycopg', 'pyarrow', 'numba', 'faust'} & set(sys.modules)\n"
        "sys.exit(','.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "bandwidth" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["bandwidth", "set", "fast"],
        ["bandwidth", "set", "5/week"],
        ["bandwidth", "set", "--", "-1"],
        ["hosts", "limit", "https://a.example/", "1/s"],
        ["hosts", "limit", "user@a.example", "1/s"],
        ["hosts", "limit", "a.example"],
        ["hosts", "limit", "a.example", "--open", "0"],
        ["hosts", "limit", "a.example", "--open", "1001"],
        ["hosts", "limit", "a.example", "--open", "few"],
        ["pages", "remove", "ftp://a.example/"],
        ["pages", "remove"],
        ["pages", "remove", "--host", "a.example", "--prefix", "https://a.example/b"],
        ["pages", "remove", "--prefix", "a.example/b"],
        ["pages", "max-age", "https://a.example/"],
        ["pages", "max-age", "https://a.example/", "--days", "1", "--none"],
        ["pages", "max-age", "https://a.example/", "--days", "0"],
        ["crawl"],
        ["backup", "save", ""],
        ["crawl", "http://169.254.169.254/latest"],
        ["crawl", "https://a.example/", "ftp://a.example/"],
        ["pages", "import", "nowhere.csv"],
        ["pages", "max-age", "https://a.example/", "--days", "1.1e6"],
        ["worker", "gardener"],
        ["bench", "nothing"],
        ["run", "--days", "1", "--seconds", "1"],
        ["run", "--world", "none", "--bandwidth-at", "1:2"],
        ["run", "--bandwidth-at", "soon"],
        ["run", "--crawls-per-day", "1", "--crawls-per-second", "1/s"],
        ["nonsense"],
    ],
)
def test_users_errors_exit_with_2_and_no_traceback(run, arguments: list[str]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "Error: " in result.output
    assert "Traceback" not in result.output


def test_an_unknown_setting_is_named(run, monkeypatch) -> None:
    monkeypatch.setenv("FRESHET_SPEEED", "1")

    result = run("settings")

    assert result.exit_code == 2
    assert "FRESHET_SPEEED" in result.output


def test_a_broker_that_is_away_is_named(run, monkeypatch, closed_port: int) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{closed_port}")

    for arguments in (["bandwidth", "get"], ["bandwidth", "set", "1/s"], ["topics", "ensure"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert f"127.0.0.1:{closed_port}" in result.output
        assert "KAFKA_BOOTSTRAP_SERVERS" in result.output


def test_a_database_that_is_away_is_named_without_its_password(
    run, monkeypatch, closed_port: int
) -> None:
    url = f"postgresql://freshet:secret@127.0.0.1:{closed_port}/freshet"
    monkeypatch.setenv("DATABASE_URL", url)

    result = run("migrate")

    assert result.exit_code == 2
    assert f"freshet@127.0.0.1:{closed_port}" in result.output
    assert "DATABASE_URL" in result.output
    assert "secret" not in result.output


def test_settings_show_values_sources_and_no_secrets(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://freshet:secret@db/freshet")
    monkeypatch.setenv("FRESHET_POLICY", "uniform")
    monkeypatch.setenv("FRESHET_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("FRESHET_KAFKA_SASL_USERNAME", "freshet")
    monkeypatch.setenv("FRESHET_KAFKA_SASL_PASSWORD", "hidden")
    stream = {"url": "wss://me:hidden@s.example/a?key=hidden", "source": "s", "format": "jetstream"}
    monkeypatch.setenv("FRESHET_POLLER_STREAMS", json.dumps([stream]))
    (tmp_path / "freshet.toml").write_text("partitions = 16\n")

    result = run("settings", "--json")

    rows = {row["setting"]: row for row in json.loads(result.output)}
    assert rows["policy"]["value"] == "uniform"
    assert rows["policy"]["source"] == "environment FRESHET_POLICY"
    assert rows["partitions"] == {
        "setting": "partitions",
        "value": 16,
        "source": "file freshet.toml",
    }
    assert rows["database_url"]["value"] == "postgresql://freshet@db/freshet"
    assert rows["database_url"]["source"] == "environment DATABASE_URL"
    assert "'wss://s.example/a'" in rows["poller_streams"]["value"]
    assert rows["tick_seconds"]["source"] == "default"
    assert "secret" not in result.output
    assert "hidden" not in result.output


def test_topics_are_listed_without_a_broker(run, monkeypatch, closed_port: int) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{closed_port}")
    monkeypatch.setenv("FRESHET_PARTITIONS", "16")

    result = run("topics", "list", "--json")

    partitions = {row["topic"]: row["partitions"] for row in json.loads(result.stdout)}
    assert {"signals", "crawl-requests", "dead-letters"} <= partitions.keys()
    assert (partitions["crawl-requests"], partitions["multipliers"]) == (16, 1)
    assert "those of the settings" in result.stderr
    assert "written by" in run("topics", "list").output


def test_a_wrong_world_plan_is_named(run, tmp_path) -> None:
    (tmp_path / "plan.json").write_text("{}")

    result = run("world", "plan.json")

    assert result.exit_code == 2
    assert "plan.json" in result.output


def test_rates_have_units() -> None:
    from services.cli.commands.bandwidth import Rate

    convert = Rate().convert

    assert convert("100", None, None) == 100.0
    assert convert("2.5/s", None, None) == 2.5
    assert convert("86400/day", None, None) == 1.0
    with pytest.raises(click.BadParameter):
        convert("nan", None, None)


@pytest.mark.parametrize(
    ("arguments", "ends"), [(["worker", "ingester"], False), (["settings"], True)], ids=str
)
def test_workers_alone_wait_for_a_database_that_has_stopped(run, monkeypatch, arguments, ends):
    said = []
    for place in ("ingester.worker.main", "cli.commands.settings.show_rows"):
        monkeypatch.setattr(
            f"services.{place}", lambda *_, **__: said.append(DATABASE_PATIENCE.ends)
        )
    run(*arguments)
    assert said == [ends]
    assert not DATABASE_PATIENCE.ends
