"""`freshet crawl`: what is sent."""

from click.testing import CliRunner
from taken_messages import Taken, publish_by

from services.cli.main import main
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES


class Sent(Taken):
    """Keeps what a publisher is given."""

    def __init__(self, settings) -> None:
        super().__init__(settings)
        self.messages = []

    async def send_for_host(self, topic, host, message):
        self.messages.append((topic, host, message))


def test_pages_are_asked_for_at_once_by_their_canonical_urls(monkeypatch):
    made = []

    def make(settings):
        made.append(Sent(settings))
        return made[0]

    publish_by(monkeypatch, make)
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
