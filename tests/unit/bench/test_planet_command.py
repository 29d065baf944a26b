"""What was measured for hours is not lost at the end for a file that could not be written."""

import pytest
from click.testing import CliRunner

from services.bench import planet
from services.plan.coefficients import read_measured


@pytest.fixture
def measured(monkeypatch):
    """Parts that are measured at once; which were."""
    seen = []

    def disk(_pages):
        seen.append("disk")
        return {"hosts_disk_bytes": 250.0}

    monkeypatch.setattr(planet, "_disk", disk)
    return seen


def planet_for(file):
    return CliRunner().invoke(planet.command, ["--part", "disk", "--write", str(file)])


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(measured, tmp_path):
    other = tmp_path / "other.yml"
    other.write_text("- this is no file of coefficients\n")
    for file, reason in ((other, "other.yml"), (tmp_path / "away" / "new.yml", "away")):
        answer = planet_for(file)
        assert answer.exit_code == 1
        assert reason in answer.output
        assert measured == []
    assert other.read_text().startswith("- this")


def test_what_a_file_has_besides_stays(measured, tmp_path):
    file = tmp_path / "mine.yml"
    for _ in range(2):
        assert planet_for(file).exit_code == 0
    found = read_measured(file)
    assert found["hosts_disk_bytes"].value == 250.0
    assert "--part disk" in found["hosts_disk_bytes"].run.command
    assert measured == ["disk", "disk"]
