"""How long a broker was away, as the watchdog has to know: until it answers again."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError

from shared.runtime import broker_watch
from shared.runtime.broker_watch import BrokerWatch
from shared.runtime.settings import FILE_VARIABLE, Settings, load_settings

ASKED_EVERY = 0.01


class Client:
    """Answers as it is told, and notes when it was asked."""

    def __init__(self, answers, asked_all):
        self._answers = list(answers)
        self._asked_all = asked_all

    async def bootstrap(self):
        """It is connected."""

    def set_topics(self, topics):
        """It asks about those."""

    async def force_metadata_update(self):
        answer = self._answers.pop(0)
        if not self._answers:
            self._asked_all.set()
        return answer

    async def close(self):
        """Nothing is open."""


class Newcomer(Client):
    """Is answered, and asks for nothing more."""

    def __init__(self, asked_all):
        super().__init__([], asked_all)
        self.connected = 0

    async def bootstrap(self):
        self.connected += 1

    def set_topics(self, topics):
        raise AssertionError(f"a broker would make {topics}")


class Unanswered(Client):
    """Whoever comes anew finds no broker, either."""

    async def bootstrap(self):
        raise KafkaConnectionError


async def lets_in(_settings, _options):
    """Nothing is wrong with the password."""


async def away_at_after(monkeypatch, *answers):
    """The watch after those answers; the clock goes on by one whenever it is read."""
    asked_all, clock = asyncio.Event(), itertools.count()
    monkeypatch.setattr(broker_watch, "ASK_SECONDS", ASKED_EVERY)
    made = iter([Client(answers, asked_all)])
    monkeypatch.setattr(
        broker_watch, "AIOKafkaClient", lambda **options: next(made, Unanswered([], asked_all))
    )
    monkeypatch.setattr(broker_watch, "check_access", lets_in)
    time = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr(broker_watch, "time", time)
    watch, stopping = BrokerWatch(Settings()), asyncio.Event()
    watching = asyncio.create_task(watch.run(stopping))
    await asyncio.wait_for(asked_all.wait(), 10.0)
    stopping.set()
    await watching
    return watch


async def test_an_absence_lasts_until_the_broker_answers(monkeypatch):
    watch = await away_at_after(monkeypatch, True, False, False, True, True)
    # Two questions without an answer, each before and after its reasons are asked for, and the
    # first answer after them: the fifth reading.
    assert watch.away_at == 4.0
    assert watch.trouble is None


async def test_a_broker_that_is_away_is_waited_for_with_every_question(monkeypatch):
    watch = await away_at_after(monkeypatch, True, False, False)
    assert watch.away_at == 3.0
    assert "no broker answers" in watch.trouble


@pytest.mark.parametrize("answers", [1, 3])
async def test_a_broker_that_answers_was_never_away(monkeypatch, answers):
    assert (await away_at_after(monkeypatch, *[True] * answers)).away_at == float("-inf")


async def test_before_the_topics_are_made_no_broker_is_asked_about_one(monkeypatch):
    """It would make it, with other settings than Freshet's, or other partitions."""
    client = Newcomer(asyncio.Event())
    monkeypatch.setattr(broker_watch, "AIOKafkaClient", lambda **_: client)
    watch = BrokerWatch(Settings())
    watch.topics_are_there = False
    for _ in range(3):
        await watch.ask()
    assert (client.connected, watch.trouble) == (3, None)
    asked = []
    monkeypatch.setattr(client, "set_topics", asked.extend)
    client._answers = [True, True]
    watch.topics_are_there = True
    for _ in range(2):
        await watch.ask()
    assert asked == ["bandwidth"]
    assert client.connected == 4


def test_newcomers_come_with_the_user_and_the_password_of_now(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.setenv("FRESHET_KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"FRESHET_KAFKA_SASL_{name}_FILE", str(tmp_path / name))
        (tmp_path / name).write_text("before")
    settings = load_settings()
    for name in ("USERNAME", "PASSWORD"):
        (tmp_path / name).write_text("now")
    options = broker_watch._options_of_now(settings)
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("now", "now")
