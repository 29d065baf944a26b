"""A copy of budget and limits is read as strictly as the topics, and a bad one names its line."""

import io

import pytest

from services.cli import backup
from services.cli.backup import MOST_LINE_BYTES, read_copy, save
from services.cli.errors import UserError
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
