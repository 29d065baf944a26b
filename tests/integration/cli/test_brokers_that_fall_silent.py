"""A broker that hangs while a command reads is given up and named: the client waits for ever."""

import asyncio
import os
import signal
import uuid

import pytest
from click.testing import CliRunner
from workers import settings_for, variables_of

from deploy.local.kafka import LocalBroker
from services.cli import broker_time, kafka
from services.cli.main import main
from shared.contracts.messages import Bandwidth, HostLimit
from shared.contracts.topics import BANDWIDTH, DEAD_LETTERS, HOST_LIMITS
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher

pytestmark = pytest.mark.kafka


@pytest.fixture
def hanging(scratch_dir):
    """A broker for one test alone, and a function that lets it hang."""
    broker = LocalBroker(scratch_dir / f"own-{uuid.uuid4().hex}")
    broker.start()
    group = os.getpgid(broker._process.pid)
    try:
        yield broker, lambda: os.killpg(group, signal.SIGSTOP)
    finally:
        broker.kill()


async def fill(settings):
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_global(BANDWIDTH, Bandwidth(1.0, 1.7e9))
    await publisher.send_for_host(HOST_LIMITS, "a.example", HostLimit("a.example"))
    await publisher.send(DEAD_LETTERS, b"k", b"{}", partition=0)
    await publisher.flush()
    await publisher.stop()


@pytest.mark.slow(15)
@pytest.mark.parametrize(
    "arguments",
    [
        ["dead-letters", "list"],
        ["dead-letters", "drop", "--all"],
        ["bandwidth", "get"],
        ["backup", "save", "kept.jsonl"],
    ],
    ids=" ".join,
)
def test_a_broker_that_hangs_while_it_is_read(
    hanging, migrated_url, monkeypatch, tmp_path, arguments
):
    broker, hang = hanging
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kafka, "READ_SECONDS", 1.0)
    settings = settings_for(broker.bootstrap_servers, "silent", database_url=migrated_url)
    asyncio.run(fill(settings))
    for name, value in variables_of(settings).items():
        monkeypatch.setenv(name, value)

    async def known(_settings):
        return None

    made = kafka.make_consumer

    def make_consumer(settings):
        """One that finds the broker hanging once it knows what there is to read."""
        consumer, asked = made(settings), set()
        assign = consumer.assign

        def assigned(partitions):
            assign(partitions)
            # Else it might have read all of it by then.
            if len(asked) < 2:
                consumer.pause(*partitions)

        def hangs_after(name):
            ask = getattr(consumer, name)

            async def asking(partitions):
                found = await ask(partitions)
                asked.add(name)
                if len(asked) == 2:
                    hang()
                    consumer.resume(*consumer.assignment())
                return found

            setattr(consumer, name, asking)

        monkeypatch.setattr(consumer, "assign", assigned)
        hangs_after("beginning_offsets")
        hangs_after("end_offsets")
        return consumer

    monkeypatch.setattr(broker_time, "_measured", known)
    for module in ("dead_letters", "standing", "kafka"):
        monkeypatch.setattr(f"services.cli.{module}.make_consumer", make_consumer)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.exception
    assert "takes connections and does not answer (nothing more of silent-" in result.output
    assert not (tmp_path / "kept.jsonl").exists()
