"""`freshet crawl`: what is sent."""

import asyncio

from click.testing import CliRunner

from services.cli import page_updates
from services.cli.main import main
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES


class Sent:
    """Takes what a publisher is given."""

    def __init__(self, _settings) -> None:
        self.messages = []

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send_for_host(self, topic, host, message):
        self.messages.append((topic, host, message))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def test_pages_are_asked_for_at_once_by_their_canonical_urls(monkeypatch):
    made = []

    def make(settings):
        made.append(Sent(settings))
        return made[0]

    monkeypatch.setattr(page_updates, "Publisher", make)
    urls = ["https://A.example/x#part", "https://b.example"]
    result = CliRunner().invoke(main, ["crawl", *urls, "--json"])
    assert result.exit_code == 0, result.output
    assert '"https://a.example/x"' in result.output
    (first, second) = made[0].messages
    time = first[2].updated_at
    assert time > 1.6e9
    asked = PageUpdate("upsert", "https://a.example/x", updated_at=time, urgent=True)
    assert first == (PAGE_UPDATES, "a.example", asked)
    assert (second[1], second[2].urgent, second[2].importance) == ("b.example", True, None)
