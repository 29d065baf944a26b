"""Where no process can be made that answers, who asks hears so at once."""

import asyncio
import subprocess

import msgspec
import pytest

from services.coordinator.views import serving
from services.coordinator.views.questions import Question
from services.coordinator.views.serving import Asking
from services.poller.sites.entries import BadDocument
from services.poller.sites.feed_process import FeedProcess

REASON = "no process can be started on this machine: Cannot allocate memory"


@pytest.fixture
def no_memory(monkeypatch):
    def popen(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", popen)


async def test_who_looks_is_told_why_there_is_no_answer(no_memory, monkeypatch):
    monkeypatch.setattr(serving, "PATIENCE_SECONDS", 3600.0)
    asking = Asking()
    for _ in range(2 * serving.MOST_WAITING):
        answer = await asyncio.wait_for(asking.ask(Question("hosts")), 60.0)
        assert answer.status == 503
        assert msgspec.json.decode(answer.body) == {"error": REASON}
        assert answer.trouble == REASON
    asking.stop()
    answer = await asking.ask(Question("hosts"))
    assert "no process can be asked" in answer.trouble


async def test_a_feed_is_not_read_and_the_reason_is_kept(no_memory):
    feeds = FeedProcess()
    with pytest.raises(BadDocument, match=REASON):
        await feeds.read("https://a.example/feed", b"<rss/>")
    feeds.stop()
