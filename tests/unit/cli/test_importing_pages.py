"""`freshet pages import`: which way pages go, and which of them."""

import json

import pytest
from click.testing import CliRunner

from services.cli import page_updates
from services.cli.main import main
from shared.store import imports
from shared.store.import_rows import ImportReport
from shared.store.writer_lock import StoreBusy


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs an import while an estimator runs, or does not: the result, and which ways were gone."""

    def invoke(*arguments, is_busy):
        ways = []

        def copy(*_given, private_hosts, **_options):
            ways.append(("copy", private_hosts))
            if is_busy:
                raise StoreBusy
            return ImportReport(read=1, added=1)

        async def publish(settings, *_):
            ways.append(("kafka", settings.allow_private_hosts))
            return ImportReport(read=1, added=1)

        monkeypatch.setattr(imports, "import_shared", copy)
        monkeypatch.setattr(page_updates, "publish_rows", publish)
        (tmp_path / "pages.csv").write_text("url,importance\nhttps://a.example/,1\n")
        arguments = ["pages", "import", str(tmp_path / "pages.csv"), *arguments, "--json"]
        return CliRunner().invoke(main, arguments), ways

    return invoke


def test_where_an_estimator_runs_pages_go_by_kafka_unless_that_is_not_wanted(run):
    done, ways = run(is_busy=False)
    assert (json.loads(done.stdout)["added"], ways) == (1, [("copy", False)])
    done, ways = run(is_busy=True)
    assert (json.loads(done.stdout)["published"], ways) == (1, [("copy", False), ("kafka", False)])
    done, ways = run("--via", "kafka", is_busy=False)
    assert (json.loads(done.stdout)["via"], ways) == ("kafka", [("kafka", False)])
    done, ways = run("--via", "copy", is_busy=True)
    assert done.exit_code != 0
    assert ways == [("copy", False)]


def test_private_hosts_are_taken_where_the_settings_let_them(run, monkeypatch):
    monkeypatch.setenv("FRESHET_ALLOW_PRIVATE_HOSTS", "true")
    assert run(is_busy=False)[1] == [("copy", True)]


@pytest.mark.parametrize("via", ["copy", "kafka"])
def test_what_is_left_out_is_answered_and_what_is_misspelt_goes_no_way(tmp_path, monkeypatch, via):
    def read(rows):
        return ImportReport(read=sum(len(batch.urls) for batch in rows), added=1)

    async def publish(_settings, rows, _progress):
        return read(rows)

    monkeypatch.setattr(imports, "import_shared", lambda _databases, _shards, rows, **_: read(rows))
    monkeypatch.setattr(page_updates, "publish_rows", publish)
    file = tmp_path / "pages.csv"
    arguments = ["pages", "import", str(file), "--via", via, "--json"]
    file.write_text("url,importance,lang,max_age\nhttps://a.example/,1,de,7\n")
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "is it max_age_days" in refused.output
    done = CliRunner().invoke(main, [*arguments, "--ignore-column", "max_age"])
    assert json.loads(done.stdout)["columns_left_out"] == ["lang", "max_age"]
    file.write_text("url,importance\nhttps://a.example/,1\n")
    assert "columns_left_out" not in json.loads(CliRunner().invoke(main, arguments).stdout)
