"""An archive of a Java server's classes is made once, and does without where it cannot be made."""

from pathlib import Path

import pytest

from deploy.local.java import class_archive
from deploy.local.process import StartError


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: str(tmp_path / name))
    (tmp_path / "java").touch()
    return tmp_path / "server-1"


def writes(option: str) -> None:
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_text("classes")


def must_not_run(option: str) -> None:
    pytest.fail(option)


def test_it_is_made_once(jars: Path) -> None:
    made = class_archive(jars, writes)

    assert made is not None
    assert made.read_text() == "classes"
    assert class_archive(jars, must_not_run) == made


def test_another_java_has_one_of_its_own(jars: Path) -> None:
    first = class_archive(jars, writes)
    jars.with_name("java").unlink()
    jars.with_name("java").symlink_to(__file__)

    assert class_archive(jars, writes) not in {None, first}


def test_where_the_server_fails_there_is_none_and_the_next_one_tries_again(jars: Path) -> None:
    def fails(option: str) -> None:
        writes(option)
        raise StartError("it ended with 1")

    assert class_archive(jars, fails) is None
    assert class_archive(jars, lambda _: None) is None  # it ended well, and left nothing
    assert class_archive(jars, writes) is not None
