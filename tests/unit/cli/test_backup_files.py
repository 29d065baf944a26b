"""A copy of budget and limits is read as strictly as the topics, and a bad one names its line."""

import errno
import io
import os
import stat

import pytest
from aiokafka.errors import KafkaConnectionError
from click.testing import CliRunner
from msgspec import Raw
from taken_messages import Taken, publish_by

from services.cli import audit, backup
from services.cli.backup import CLOCKS_AGREE_SECONDS, MOST_LINE_BYTES, read_copy, save
from services.cli.errors import UserError
from services.cli.main import main
from services.cli.standing import Stands
from shared.contracts.codec import decode, encode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.runtime.settings import Settings

HEAD = '{"freshet_backup":1,"saved_at":1.7e9}\n'
BUDGET = '{"topic":"bandwidth","key":"global","message":{"crawls_per_second":5.0}}\n'
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
        # What those who read it refuse.
        (HEAD + LIMIT.replace('"host":"a.example"', '"host":"a b"'), "line 2"),
        (HEAD + BUDGET.replace("5.0", '5.0,"timezone":"Nowhere/Nothing"'), "line 2"),
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


def test_a_copy_with_a_budget_stays_where_none_stands_any_more(
    nothing_stands, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "copy"
    copy.write_text(HEAD + LIMIT + BUDGET)
    refused = CliRunner().invoke(main, ["backup", "save", "copy"])
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert copy.read_text() == HEAD + LIMIT + BUDGET
    assert CliRunner().invoke(main, ["backup", "save", "copy", "--force"]).exit_code == 0
    assert "bandwidth" not in copy.read_text()


GROUP = '{"topic":"group-limits","key":"a.example","message":{"group":"a.example"}}\n'


STANDING = {
    "bandwidth": {("global", ""): Stands(b'{"crawls_per_second":5.0}')},
    "group-limits": {("a.example", ""): Stands(b'{"group":"a.example"}')},
    # It was taken back: that is known.
    "host-limits": {("a.example", "limit"): Stands(b"{}", 1.0, is_set=False)},
}


@pytest.mark.parametrize(
    ("line", "lost", "what"),
    [
        (BUDGET, "bandwidth", "no budget"),
        (GROUP, "group-limits", "no limit of a group"),
        (LIMIT, "host-limits", "no rule of a host"),
    ],
)
def test_a_copy_stays_that_has_what_stands_no_more_whatever_else_does(
    monkeypatch, tmp_path, line, lost, what
):
    """Topics may be lost one by one."""
    stand = STANDING | {lost: {}}

    async def standing(_settings, topic):
        return stand[topic.name]

    monkeypatch.setattr(backup, "all_standing", standing)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").write_text(HEAD + line)
    refused = CliRunner().invoke(main, ["backup", "save", "copy"])
    assert refused.exit_code == 2
    assert f"{what} stands" in refused.output
    assert "freshet backup restore" in refused.output
    assert (tmp_path / "copy").read_text() == HEAD + line
    stand |= STANDING
    assert CliRunner().invoke(main, ["backup", "save", "copy"]).exit_code == 0


def test_a_copy_with_two_budgets_sets_none():
    with pytest.raises(UserError, match="line 3 of the copy is another budget"):
        read_copy(io.StringIO(HEAD + BUDGET + BUDGET.replace("global", "-")))


def test_a_budget_has_the_key_of_those_that_commands_set():
    [line] = read_copy(io.StringIO(HEAD + BUDGET.replace("global", "-"))).lines
    assert line.key == "global"


@pytest.mark.parametrize("before", [HEAD, "", "something else", HEAD + BUDGET[:-9]])
def test_any_other_file_is_written_anew(nothing_stands, monkeypatch, tmp_path, before):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").write_text(before)
    assert CliRunner().invoke(main, ["backup", "save", "copy"]).exit_code == 0
    assert (tmp_path / "copy").read_text().count("\n") == 1


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


async def test_a_copy_is_whole_or_the_one_before_is_there(nothing_stands, monkeypatch, tmp_path):
    copy = tmp_path / "copy"
    copy.write_text(HEAD + LIMIT)
    with copy.open() as reading:
        await save(Settings(), copy, force=True)
        assert reading.read() == HEAD + LIMIT, "who reads it meanwhile reads the one that it was"
    second = copy.read_text()

    def is_full(_file):
        raise OSError(errno.ENOSPC, "No space left on device")

    # Only once it is on the disk it has the name.
    monkeypatch.setattr(os, "fsync", is_full)
    with pytest.raises(UserError, match="copy cannot be written: No space left"):
        await save(Settings(), copy, force=True)
    assert copy.read_text() == second


def test_what_a_restore_has_set_before_it_was_cut_off_is_noted(
    nothing_stands, monkeypatch, tmp_path
):
    class Publisher(Taken):
        left = 1

        async def send(self, *_args, **_options):
            if not self.left:
                raise KafkaConnectionError("away")
            self.left -= 1

    noted = []
    publish_by(monkeypatch, Publisher)
    monkeypatch.setattr(audit, "note_change", lambda _url, change: noted.append(change))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    (tmp_path / "copy").write_text(HEAD + LIMIT * 2)
    result = CliRunner().invoke(main, ["backup", "restore", str(tmp_path / "copy")])
    assert result.exit_code == 2
    assert "restored" not in result.output
    [change] = noted
    assert (change.about, change.change["first"]) == ("backup", ["a.example"])
    assert change.change["restores"] >= 1


@pytest.fixture
def restored(monkeypatch):
    """Restores a copy with one limit over one that somebody else said at a time: what became of it,
    and what was published."""

    async def invoke(said_at, **options):
        sent = []

        class Publisher(Taken):
            async def send(self, topic, key, value, *, at):
                sent.append((topic.name, key, decode(topic.message, value)))

        async def standing(_settings, topic):
            if topic is not HOST_LIMITS:
                return {}
            value = encode(HostLimit("a.example", 9.0, only="limit"))
            return {("a.example", "limit"): Stands(value, said_at)}

        publish_by(monkeypatch, Publisher)
        monkeypatch.setattr(backup, "all_standing", standing)
        limit = HostLimit("a.example", 2.0, only="limit")
        line = backup.Line("host-limits", "a.example", Raw(encode(limit)))
        done = backup.Restored()
        options = {"overwrite": False, "dry_run": False} | options
        await backup.restore(Settings(), backup.Copy(SAVED_AT, [line]), done, **options)
        assert sent in ([], [("host-limits", b"a.example", limit)])
        return (done.restored, done.newer), bool(sent)

    return invoke


SAVED_AT = 1.7e9


async def test_what_was_said_since_stays_though_its_sender_had_a_clock_that_is_behind(restored):
    assert await restored(SAVED_AT + 1.0) == ((0, 1), False)
    assert await restored(SAVED_AT - CLOCKS_AGREE_SECONDS + 1.0) == ((0, 1), False)
    assert await restored(SAVED_AT - CLOCKS_AGREE_SECONDS - 1.0) == ((1, 0), True)
    assert await restored(SAVED_AT + 1.0, overwrite=True) == ((1, 0), True)


async def test_a_dry_run_says_what_would_be_and_sets_nothing(restored):
    assert await restored(SAVED_AT + 1.0, overwrite=True, dry_run=True) == ((1, 0), False)
