"""Brokers that answer newcomers alone: at other addresses, or by a certificate that was renewed.

Clients of ours ask the brokers that they know, with what they read when they were made: such a
worker would wait for ever, and is ended to be restarted.
"""

from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError
from structlog.testing import capture_logs

from shared.runtime import broker_watch, worker
from shared.runtime.access import AccessRefused
from shared.runtime.broker_watch import ASK_SECONDS, LEAST_TIMES, STUCK_SECONDS, BrokerWatch, Streak
from shared.runtime.settings import FILE_VARIABLE, Settings, SettingsError, load_settings
from shared.runtime.worker import EXIT_STALLED, WorkerService

ROUNDS = int(STUCK_SECONDS / ASK_SECONDS) + 1
"""Questions, until a worker that gets no answer to any of them is ended."""

BOOTSTRAP = "kafka.example:9092"


class Brokers:
    """Where they are and whom they let in, as their clients see it; and what time it is."""

    def __init__(self):
        self.now = 0.0
        self.at = {"10.0.0.1:9092"}
        self.takes = "first"
        self.in_the_file = "first"
        self.are_reached_by_bootstrap = True
        self.hung = set()
        """Clients whose connections are dead, and who have not noticed."""
        self.made = []

    def options(self, settings):
        if self.in_the_file is None:
            raise SettingsError("the key does not belong to the certificate")
        password = settings.kafka_sasl_password
        shown = password.get_secret_value() if password else self.in_the_file
        return {"bootstrap_servers": settings.kafka_bootstrap_servers, "ssl_context": shown}

    def client(self, **options):
        made = Client(self, options)
        self.made.append(made)
        return made

    async def check_access(self, _settings, options):
        if self.are_reached_by_bootstrap and options["ssl_context"] != self.takes:
            raise AccessRefused("the broker does not take it", certain=True)


class Client:
    """As aiokafka's: asks by its first address once, and then whom it was told of."""

    def __init__(self, brokers, options):
        self._brokers, self._shows = brokers, options["ssl_context"]
        self._first = set(options["bootstrap_servers"].split(","))
        self._known = set()
        self.is_open = True

    @property
    def cluster(self):
        pairs = [address.rsplit(":", 1) for address in sorted(self._known)]
        found = [SimpleNamespace(host=host, port=int(port)) for host, port in pairs]
        return SimpleNamespace(brokers=lambda: found)

    async def bootstrap(self):
        behind = self._brokers.at if self._brokers.are_reached_by_bootstrap else set()
        there = (BOOTSTRAP in self._first and behind) or self._first & self._brokers.at
        if not there or self._shows != self._brokers.takes:
            raise KafkaConnectionError
        self._known = set(self._brokers.at)

    def set_topics(self, topics):
        """It asks about those."""

    async def force_metadata_update(self):
        brokers = self._brokers
        if self in brokers.hung or self._shows != brokers.takes or not self._known & brokers.at:
            return False
        self._known = set(brokers.at)
        return True

    async def close(self):
        self.is_open = False


@pytest.fixture
def brokers(monkeypatch):
    made = Brokers()
    monkeypatch.setattr(broker_watch, "client_options", made.options)
    monkeypatch.setattr(broker_watch, "AIOKafkaClient", made.client)
    monkeypatch.setattr(broker_watch, "check_access", made.check_access)
    monkeypatch.setattr(broker_watch, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


class Watched:
    """A watch, and why it would have ended its worker."""

    def __init__(self, brokers, settings=None):
        self._brokers = brokers
        self.reasons = []
        settings = settings or Settings(kafka_bootstrap_servers=BOOTSTRAP)
        self.watch = BrokerWatch(settings, self.reasons.append)

    async def ask(self, times=1):
        for _ in range(times):
            await self.watch.ask()
            self._brokers.now += ASK_SECONDS


@pytest.fixture
async def watched(brokers):
    made = Watched(brokers)
    await made.ask()
    assert made.watch.trouble is None
    return made


async def test_brokers_that_moved_are_found_by_a_restart(brokers, watched):
    brokers.at = {"10.0.0.7:9092"}
    await watched.ask(ROUNDS - 1)
    assert watched.reasons == []
    assert "no broker answers" in watched.watch.trouble
    await watched.ask()
    assert len(watched.reasons) == 1
    assert "KAFKA_BOOTSTRAP_SERVERS" in watched.reasons[0]


async def test_brokers_that_move_one_by_one_are_followed(brokers, watched):
    for at in ({"10.0.0.1:9092", "10.0.0.7:9092"}, {"10.0.0.7:9092"}):
        brokers.at = at
        await watched.ask(ROUNDS)
    assert (watched.reasons, watched.watch.trouble) == ([], None)


async def test_brokers_that_are_away_are_waited_for(brokers, watched):
    brokers.at = set()
    await watched.ask(10 * ROUNDS)
    assert watched.reasons == []


async def test_who_answers_at_the_first_address_alone_is_waited_for(brokers, watched, monkeypatch):
    """A balancer takes connections, and the brokers behind it are not up: a restart helps nobody,
    and one who is slow with us is as slow with others."""
    brokers.at = {"10.0.0.7:9092"}

    async def silent(_client):
        return False

    monkeypatch.setattr(Client, "force_metadata_update", silent)
    await watched.ask(10 * ROUNDS)
    assert watched.reasons == []


async def test_who_answers_again_in_between_ends_nothing(brokers, watched):
    home = brokers.at
    for _ in range(5):
        brokers.at = {"10.0.0.7:9092"}
        await watched.ask(ROUNDS - 1)
        brokers.at = home
        await watched.ask()
        assert watched.watch.trouble is None
    assert watched.reasons == []


async def test_newcomers_must_be_answered_every_time(brokers, watched):
    brokers.at = {"10.0.0.7:9092"}
    for _ in range(5):
        brokers.are_reached_by_bootstrap = True
        await watched.ask(ROUNDS - 1)
        brokers.are_reached_by_bootstrap = False
        await watched.ask()
    assert watched.reasons == []


async def test_a_connection_that_hangs_is_replaced_and_ends_nothing(brokers, watched):
    """The other clients of the worker replace theirs as well."""
    own = brokers.made[0]
    brokers.hung = {own}
    await watched.ask(ROUNDS + 1)
    assert (watched.reasons, watched.watch.trouble) == ([], None)
    assert not own.is_open
    assert sum(client.is_open for client in brokers.made) == 1


async def test_a_renewed_certificate_is_read_by_a_restart(brokers, watched):
    brokers.takes = "second"
    await watched.ask(10 * ROUNDS)
    assert watched.reasons == []
    assert "do not let this worker in" in watched.watch.trouble
    brokers.in_the_file = "second"
    await watched.ask(ROUNDS)
    assert len(watched.reasons) == 1
    assert "renewed" in watched.reasons[0]


async def test_files_that_are_being_replaced_are_read_again(brokers, watched):
    brokers.takes, brokers.in_the_file = "second", None
    await watched.ask()
    assert "the key does not belong" in watched.watch.trouble
    brokers.in_the_file = "second"
    await watched.ask(ROUNDS)
    assert len(watched.reasons) == 1


async def test_what_is_renewed_while_the_old_still_opens_ends_nothing(brokers, watched):
    brokers.in_the_file = "second"
    await watched.ask(10 * ROUNDS)
    assert (watched.reasons, watched.watch.trouble) == ([], None)


async def test_a_renewed_password_is_read_from_its_file(brokers, monkeypatch, tmp_path):
    file = tmp_path / "password"
    file.write_text("first\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    for name, value in {
        "KAFKA_BOOTSTRAP_SERVERS": BOOTSTRAP,
        "FRESHET_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "FRESHET_KAFKA_SASL_USERNAME": "freshet",
        "FRESHET_KAFKA_SASL_PASSWORD_FILE": str(file),
    }.items():
        monkeypatch.setenv(name, value)
    watched = Watched(brokers, load_settings())
    await watched.ask()
    assert watched.watch.trouble is None
    brokers.takes = "second"
    await watched.ask(ROUNDS)
    assert watched.reasons == []
    file.write_text("second\n")
    await watched.ask(ROUNDS)
    assert len(watched.reasons) == 1
    assert "renewed" in watched.reasons[0]


class Worker(WorkerService):
    """Does nothing."""

    async def open(self): ...

    async def close(self): ...

    def loops(self):
        return []

    def not_ready(self): ...

    def progressed_at(self):
        return 0.0


async def test_a_worker_ends_with_the_reason_in_its_log(brokers, monkeypatch):
    codes = []
    monkeypatch.setattr(worker.os, "_exit", codes.append)
    service = Worker(Settings(kafka_bootstrap_servers=BOOTSTRAP))
    await service.broker.ask()
    brokers.at = {"10.0.0.7:9092"}
    with capture_logs() as logs:
        for _ in range(ROUNDS):
            await service.broker.ask()
            brokers.now += ASK_SECONDS
    assert codes == [EXIT_STALLED]
    assert (logs[-1]["log_level"], "restarted" in logs[-1]["event"]) == ("critical", True)


def test_a_process_that_stood_still_has_not_asked_often_enough():
    streak = Streak()
    assert not streak.note(0.0)
    late = [streak.note(1_000.0 + number) for number in range(LEAST_TIMES)]
    assert late.index(True) == LEAST_TIMES - 2
