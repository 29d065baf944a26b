"""Another version of the workers is started from its folder, and told only what it knows."""

from pathlib import Path

import pytest

from deploy.local.process import StartError
from services.verify import skewed
from services.verify.versions import Version, version_in

HERE = Path(__file__).parents[3]


def test_a_folder_says_which_settings_its_version_has() -> None:
    version = version_in(HERE)

    assert {"partitions", "request_timeout_seconds"} <= version.settings
    assert "no_such_setting" not in version.settings


def test_a_folder_without_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "__init__.py").touch()

    with pytest.raises(StartError, match="no version of Freshet"):
        version_in(tmp_path)


def test_its_workers_are_not_told_of_settings_that_came_later(tmp_path: Path) -> None:
    version = Version(tmp_path, frozenset({"partitions"}))

    told = version.environment({"partitions": 8, "least_interval_seconds": 1.0})

    assert told == {"PYTHONPATH": str(tmp_path), "FRESHET_PARTITIONS": "8"}


def test_they_have_the_clock_of_this_version(tmp_path: Path) -> None:
    argv = Version(tmp_path, frozenset()).argv(tmp_path / "clock", "scheduler")

    assert argv[1:] == ["-P", skewed.__file__, str(tmp_path / "clock"), "worker", "scheduler"]
