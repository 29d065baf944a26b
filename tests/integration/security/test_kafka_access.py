"""Every client of ours comes in through TLS and passwords, and says why where it may not."""

import asyncio
import json
import time
import uuid

import pytest
from click.testing import CliRunner
from pydantic import SecretStr
from workers import PATIENCE_SECONDS, settings_for, variables_of, worker

from services.cli.main import main
from shared.contracts.codec import decode, encode
from shared.contracts.messages import Bandwidth, PageSignal, Signal
from shared.contracts.topics import BANDWIDTH, DEAD_LETTERS, PAGE_SIGNALS, SIGNALS
from shared.runtime import broker_watch
from shared.runtime.access import AccessRefused
from shared.runtime.broker_watch import BrokerWatch
from shared.runtime.follower import Follower
from shared.runtime.kafka import client_options, ensure_topics, make_consumer
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, SettingsError

PASSWORD = "pass-w0rd-of-tests"
WRONG = "wr0ng-of-tests"


def freshet(settings: Settings, *arguments: str):
    return CliRunner().invoke(main, list(arguments), env=variables_of(settings))


@pytest.fixture(autouse=True)
async def connections_end():
    """The client ends what was refused in the loop's next turns: those come before its end."""
    yield
    await asyncio.sleep(0.1)


@pytest.fixture
def settings(access):
    prefix = f"guarded-{uuid.uuid4().hex[:8]}"
    return settings_for(str(access["kafka_bootstrap_servers"]), prefix, **access)


@pytest.mark.slow(15)
async def test_a_worker_reads_and_writes(settings, tmp_path):
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    with worker("ingester", settings, tmp_path) as process:
        await process.ready()
        await publisher.send(SIGNALS, None, encode(Signal("https://a.example/", "x", time.time())))
        await publisher.send(SIGNALS, None, b"no json")
        await publisher.flush()
        good = await first(settings, PAGE_SIGNALS)
        bad = await first(settings, DEAD_LETTERS)
        assert process.stop() == 0
    await publisher.stop()
    assert decode(PageSignal, good.value).url == "https://a.example/"
    assert bad.value == b"no json"
    assert PASSWORD not in process.log


async def first(settings, topic):
    consumer = make_consumer(settings, f"reader-{topic.name}")
    await consumer.start()
    try:
        consumer.subscribe([settings.topic(topic.name)])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                return records[0]
        raise AssertionError(f"nothing came on {topic.name}")
    finally:
        await consumer.stop()


async def test_a_follower_follows(settings):
    await ensure_topics(settings, (BANDWIDTH,))
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_global(BANDWIDTH, Bandwidth(7.0))
    await publisher.stop()
    found = []
    follower = Follower(settings, BANDWIDTH, found.append)
    await follower.start()
    await follower.stop()
    assert [decode(Bandwidth, record.value).crawls_per_second for record in found] == [7.0]


def test_commands_come_in(settings):
    assert freshet(settings, "topics", "ensure").exit_code == 0
    assert freshet(settings, "bandwidth", "set", "5/s").exit_code == 0
    shown = freshet(settings, "bandwidth", "get", "--json")
    assert shown.exit_code == 0, shown.output
    assert "5" in shown.output
    listed = freshet(settings, "settings", "--json")
    assert listed.exit_code == 0
    assert PASSWORD not in listed.output
    assert any(row["setting"] == "kafka_sasl_password" for row in json.loads(listed.output))


IN_THE_OPEN = {"kafka_security_protocol": "PLAINTEXT"} | dict.fromkeys(
    (
        *("kafka_sasl_username", "kafka_sasl_password"),
        *("kafka_ssl_cafile", "kafka_ssl_certfile", "kafka_ssl_keyfile"),
    )
)
"""Somebody who has set nothing up."""


def wrongs(settings, stranger):
    """What may be wrong, and the setting that the error must name."""
    found = []
    if settings.kafka_security_protocol.startswith("SASL"):
        found += [
            ({"kafka_sasl_password": WRONG}, "FRESHET_KAFKA_SASL_PASSWORD"),
            ({"kafka_sasl_username": "nobody"}, "FRESHET_KAFKA_SASL_USERNAME"),
            ({"kafka_sasl_mechanism": "SCRAM-SHA-256"}, "FRESHET_KAFKA_SASL_MECHANISM"),
            (IN_THE_OPEN, "FRESHET_KAFKA_SECURITY_PROTOCOL"),
        ]
    if settings.kafka_security_protocol.endswith("SSL"):
        found += [
            ({"kafka_ssl_cafile": stranger.certificate}, "FRESHET_KAFKA_SSL_CAFILE"),
            ({"kafka_ssl_cafile": None}, "FRESHET_KAFKA_SSL_CAFILE"),
            (IN_THE_OPEN, "FRESHET_KAFKA_SECURITY_PROTOCOL"),
        ]
    if settings.kafka_security_protocol == "SSL":
        mine, key = stranger.issue("intruder")
        found += [
            (
                {"kafka_ssl_certfile": None, "kafka_ssl_keyfile": None},
                "FRESHET_KAFKA_SSL_CERTFILE",
            ),
            (
                {"kafka_ssl_certfile": mine, "kafka_ssl_keyfile": key},
                "FRESHET_KAFKA_SSL_CERTFILE",
            ),
        ]
    return found


# A refused connection of aiokafka is closed when it is collected; a command has ended by then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_command_that_may_not_come_in_names_the_setting(settings, stranger):
    for change, named in wrongs(settings, stranger):
        answer = freshet(changed(settings, change), "bandwidth", "get")
        assert answer.exit_code == 2, (change, answer.output)
        assert named in answer.output, (change, answer.output)
        assert PASSWORD not in answer.output
        assert WRONG not in answer.output


def changed(settings, change):
    """The settings with a change."""
    secret = {name: SecretStr(value) for name, value in change.items() if value == WRONG}
    return settings.model_copy(update=change | secret)


async def test_a_worker_that_may_not_come_in_does_not_wait(settings, stranger):
    refused = 0
    for change, named in wrongs(settings, stranger):
        if "kafka_security_protocol" in change or "kafka_ssl_certfile" in change:
            continue
        with pytest.raises(AccessRefused, match=named) as caught:
            await ensure_topics(changed(settings, change))
        assert WRONG not in str(caught.value)
        refused += 1
    assert refused > 0


# As above.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_worker_that_runs_says_that_it_is_let_in_no_more(settings, stranger, monkeypatch):
    """As when the password or the authority is changed on the brokers alone."""
    monkeypatch.setattr(broker_watch, "ASK_SECONDS", 0.05)
    named = "FRESHET_KAFKA_SSL_CAFILE"
    change = {"kafka_ssl_cafile": stranger.certificate}
    if settings.kafka_security_protocol.startswith("SASL"):
        named, change = "FRESHET_KAFKA_SASL_PASSWORD", {"kafka_sasl_password": WRONG}
    watch, stopping = BrokerWatch(changed(settings, change)), asyncio.Event()
    watching = asyncio.create_task(watch.run(stopping))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while watch.trouble is None:
            await asyncio.sleep(0.02)
    stopping.set()
    await watching
    assert named in watch.trouble
    assert WRONG not in watch.trouble


@pytest.mark.parametrize("name", ["cafile", "certfile"])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    settings = Settings(
        kafka_security_protocol="SSL", **{f"kafka_ssl_{name}": tmp_path / "missing.pem"}
    )
    with pytest.raises(SettingsError, match=f"FRESHET_KAFKA_SSL_{name.upper()}"):
        client_options(settings)
