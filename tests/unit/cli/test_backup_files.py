"""A copy of budget and limits is read as strictly as the topics, and a bad one names its line."""

import io
import os
import stat

import pytest
from aiokafka.errors import KafkaConnectionError
from click.testing import CliRunner

from services.cli import audit, backup
from services.cli.backup import MOST_LINE_BYTES, read_copy, save
from services.cli.errors import UserError
from services.cli.main import main
from shared.runtime.settings import Settings

HEAD = '{"freshet_backup":1,"saved_at":1.7e9}\n'
LIMIT = '{"topic":"host-limits","key":"a.example","message":{"host":"a.example","later":1}}\n'


def test_a_message_stays_as_it_was_written():
    saved_at, [line] = read_copy(io.StringIO(HEAD + LIMIT))
    assert saved_at == 1.7e9
    assert (line.topic, line.key) == ("host-limits", "a.example")
    assert bytes(line.message) == b'{"host":"a.example","later":1}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("{}\n", "line 1"),
        ('{"freshet_backup":2,"saved_at":1.0}\n', "format 2"),
        (HEAD + "x\n", "line 2"),
        (HEAD + LIMIT + '{"topic":"signals","key":"","message":{}}\n', "'signals'"),
        (
            HEAD + '{"topic":"bandwidth","key":"global","message":{"crawls_per_second":-1}}',
            "line 2",
        ),
        (HEAD + "x" * (MOST_LINE_BYTES + 9), "too long"),
    ],
)
def test_a_file_that_is_no_copy_is_refused(text, reason):
    with pytest.raises(UserError, match=reason):
        read_copy(io.StringIO(text))


async def test_a_place_where_no_file_can_be_is_named(monkeypatch, tmp_path):
    async def nothing(_settings, _topic):
        return {}

    monkeypatch.setattr(backup, "all_standing", nothing)
    with pytest.raises(UserError, match="nowhere/copy cannot be written"):
        await save(Settings(), tmp_path / "nowhere" / "copy")


@pytest.fixture
def nothing_stands(monkeypatch):
    async def nothing(_settings, _topic):
        return {}

    monkeypatch.setattr(backup, "all_standing", nothing)


async def test_a_copy_takes_the_place_of_no_pipe_or_device(nothing_stands, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "stdout").symlink_to("pipe")
    for name in ("pipe", "stdout"):
        with pytest.raises(UserError, match=f"{name} is no file"):
            await save(Settings(), tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (tmp_path / "stdout").is_symlink()


async def test_a_link_to_a_copy_stays_one(nothing_stands, tmp_path):
    (tmp_path / "newest").symlink_to("copy")
    for _ in range(2):
        await save(Settings(), tmp_path / "newest")
        assert (tmp_path / "newest").readlink().name == "copy"
        assert read_copy(io.StringIO((tmp_path / "copy").read_text())).lines == []
    assert {path.name for path in tmp_path.iterdir()} == {"newest", "copy"}


def test_what_a_restore_has_set_before_it_was_cut_off_is_noted(
    nothing_stands, monkeypatch, tmp_path
):
    class Publisher:
        def __init__(self, _settings):
            self.left = 1

        async def start(self):
            pass

        stop = start

        async def send(self, *_args, **_options):
            if not self.left:
                raise KafkaConnectionError("away")
            self.left -= 1

    noted = []
    monkeypatch.setattr(backup, "Publisher", Publisher)
    monkeypatch.setattr(audit, "note_change", lambda _url, change: noted.append(change))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    (tmp_path / "copy").write_text(HEAD + LIMIT * 2)
    result = CliRunner().invoke(main, ["backup", "restore", str(tmp_path / "copy")])
    assert result.exit_code == 2
    assert "restored" not in result.output
    [change] = noted
    assert (change.about, change.change["first"]) == ("backup", ["a.example"])
    assert change.change["restores"] >= 1
