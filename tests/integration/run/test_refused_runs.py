"""A run that cannot be is refused before anything is started, by the name of what was given."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from services.cli.main import main
from services.demo.system import DemoOptions, DemoSystem
from services.run import preparing
from services.run import session as sessions
from services.run.options import RunOptions
from services.run.preparing import prepare_system, require_one_database
from services.run.session import Session
from services.run.view import where_to_connect
from shared.runtime.settings import Settings, load_settings
from shared.store.deployment import StoreMismatch

SEVERAL = "0-3=postgresql://a/pages,4-7=postgresql://b/pages"


@pytest.fixture
def several(monkeypatch):
    for name in ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FRESHET_DATABASES", SEVERAL)


@pytest.mark.parametrize("world", ["generated", "none"])
def test_several_databases_are_refused_and_nothing_is_left_behind(several, tmp_path, world):
    directory = tmp_path / "data"
    done = CliRunner().invoke(main, ["run", "--world", world, "--data-dir", str(directory)])
    assert done.exit_code == 2
    assert "unset FRESHET_DATABASES" in done.stderr
    assert "DATABASE_URL" not in done.stderr
    assert not directory.exists()


def test_a_demonstration_knows_of_no_databases_but_its_own(several, monkeypatch, tmp_path):
    monkeypatch.setattr("os.environ", {"FRESHET_DATABASES": SEVERAL})
    DemoSystem(DemoOptions(tmp_path, 5.0, 1, 1, 1.0, 0))
    require_one_database(load_settings())


class Grown:
    """A run on a database that has eight shards by now."""

    def __init__(self, options, *_):
        self.options = options
        self.stack = SimpleNamespace(logs="logs")

    async def run(self, _watch):
        if self.options.partitions != 4:
            raise StoreMismatch("made for 8 shards: set FRESHET_PARTITIONS=8")


def test_a_number_that_does_not_fit_is_named_as_it_was_given(monkeypatch):
    monkeypatch.setattr(sessions, "Session", Grown)
    wrong = CliRunner().invoke(main, ["run", "--partitions", "6"])
    assert wrong.exit_code == 2
    assert "--partitions 6 goes before FRESHET_PARTITIONS" in wrong.stderr
    assert "made for 8 shards" in wrong.stderr
    assert "--partitions" not in CliRunner().invoke(main, ["run"]).stderr
    assert CliRunner().invoke(main, ["run", "--partitions", "4"]).exit_code == 0


async def test_a_run_learns_how_many_shards_there_are_of_the_database(monkeypatch):
    async def no_topics(_settings):
        """They are there."""

    monkeypatch.setattr(preparing, "migrate", lambda _url, _shards: 8)
    monkeypatch.setattr(preparing, "ensure_topics", no_topics)
    settings = Settings(partitions=4)
    assert await prepare_system(settings, own_database=True, must_be_empty=True) == 8


def test_crawlers_are_told_of_the_partitions_that_there_are(tmp_path):
    run = Session(RunOptions("none", tmp_path), lambda _line: None, lambda _done, _total: None)
    run.stack._settings = Settings(partitions=4)
    run.partitions = 8
    assert where_to_connect(run).endswith("(8 partitions)")
