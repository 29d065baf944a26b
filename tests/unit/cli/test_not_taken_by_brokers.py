"""What a broker does not take is not said, nor noted, to be done."""

import asyncio

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from click.testing import CliRunner
from taken_messages import Taken, publish_by

from services.cli import audit, backup, group_limits
from services.cli.main import main
from shared.contracts.fields import MOST_GROUPS

URL = "https://a.example/"
COPY = (
    '{"freshet_backup":1,"saved_at":1.7e9}\n'
    '{"topic":"host-limits","key":"a.example","message":{"host":"a.example","only":"open"}}\n'
)


class Refused(Taken):
    """A publisher whose broker refuses all that is sent: it says so to who waits for it."""

    async def send(self, *_, **__):
        answer = asyncio.get_running_loop().create_future()
        answer.set_exception(TopicAuthorizationFailedError())
        answer.exception()  # seen, even where nobody waits for it
        return answer

    send_for_host = send

    async def flush(self):
        raise TopicAuthorizationFailedError


@pytest.fixture
def noted(monkeypatch, tmp_path):
    """Notes of changes, where nothing stands yet and brokers refuse."""
    notes = []

    async def nothing(*_):
        return {}

    async def limits(_settings):
        return {"limited.example": 2.0}

    async def room(_settings):
        return MOST_GROUPS

    publish_by(monkeypatch, Refused)
    monkeypatch.setattr(backup, "all_standing", nothing)
    monkeypatch.setattr(group_limits, "standing_limits", limits)
    monkeypatch.setattr(group_limits, "room_for_limits", room)
    monkeypatch.setattr(audit, "note_change", lambda _url, change: notes.append(change))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").write_text(COPY)
    (tmp_path / "pages.csv").write_text(f"url,importance\n{URL},1\n")
    return notes


@pytest.mark.parametrize(
    "command",
    [
        "pages remove https://a.example/",
        "pages max-age https://a.example/ --days 3",
        "pages import pages.csv --via kafka",
        "crawl https://a.example/",
        "hosts limit a.example 1/s",
        "hosts unblock a.example",
        "groups limit a.example 1/s",
        "groups unlimit limited.example",
        "backup restore copy",
    ],
)
def test_a_command_whose_messages_are_refused_fails_and_says_so(noted, command):
    done = CliRunner().invoke(main, [*command.split(), "--json"])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert "refuses" in done.stderr
    # Of a restore, which may end half-way, it is noted that it was begun.
    assert [change for change in noted if "restores" not in change.change] == []
