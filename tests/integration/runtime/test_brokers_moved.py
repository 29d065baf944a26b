"""Brokers that come back elsewhere, or want another certificate: whoever waits is begun anew."""

import asyncio
import contextlib
import shutil
import ssl
import uuid

import pytest
from certificates import Authority
from workers import PATIENCE_SECONDS, settings_for

from deploy.local.kafka import LocalBroker
from deploy.local.process import free_port
from shared.runtime import broker_watch
from shared.runtime.broker_watch import BrokerWatch

pytestmark = pytest.mark.kafka


class Door:
    """An address that stays while what is behind it may change; with TLS, if it has a context."""

    def __init__(self):
        self.context, self.port, self.leads_to = None, 0, 0
        self._server, self._tasks, self._closed_times = None, set(), 0

    async def open(self):
        opening = self._closed_times
        self._server = await asyncio.start_server(
            lambda reader, writer: self._serve(reader, writer, opening),
            "127.0.0.1",
            self.port,
            ssl=self.context,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self):
        self._server.close()
        self._closed_times += 1
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer, opening):
        if opening != self._closed_times:
            # It was shaking hands when this was closed.
            writer.transport.abort()
            return
        self._tasks.add(asyncio.current_task())
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.leads_to)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.create_task(pump(reader, inner_writer)),
            asyncio.create_task(pump(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, inner_writer):
                each.transport.abort()


async def pump(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@pytest.fixture
async def door():
    made = Door()
    yield made
    await made.close()
    # What was refused is closed in the loop's next turns.
    await asyncio.sleep(0.1)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(broker_watch, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(broker_watch, "STUCK_SECONDS", 0.5)


@pytest.fixture
def local_at(scratch_dir):
    """Starts a local broker at a port; its data stays with it."""
    data_dir, running = scratch_dir / f"moved-{uuid.uuid4().hex[:8]}", []

    async def start(port, advertised_port=None):
        for broker in running:
            await asyncio.to_thread(broker.stop)
        running[:] = [LocalBroker(data_dir, port=port, advertised_port=advertised_port)]
        await asyncio.to_thread(running[0].start)

    yield start
    for broker in running:
        broker.stop()


@contextlib.asynccontextmanager
async def watching(settings):
    """A watch, and why it would have ended its process."""
    reasons, stopping = [], asyncio.Event()
    watch = BrokerWatch(settings, reasons.append)
    task = asyncio.create_task(watch.run(stopping))
    try:
        yield watch, reasons
    finally:
        stopping.set()
        await task


async def until(is_so):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.02)


@pytest.mark.slow(2)
async def test_a_broker_that_comes_back_elsewhere_is_found_by_a_restart(local_at, door):
    await door.open()
    first, second = free_port(), free_port()
    await local_at(first)
    door.leads_to = first
    settings = settings_for(f"127.0.0.1:{door.port}", "moved")
    async with watching(settings) as (watch, reasons):
        await until(lambda: watch._is_connected)
        assert watch.trouble is None
        await local_at(second)
        door.leads_to = second
        await until(lambda: reasons)
    assert "KAFKA_BOOTSTRAP_SERVERS" in reasons[0]
    # Whoever begins anew is answered there.
    async with watching(settings) as (watch, reasons):
        await until(lambda: watch._is_connected)
        await asyncio.sleep(0.2)
        assert (watch.trouble, reasons) == (None, [])


def who_comes_by(authority, certificate, key):
    """A server's TLS: its certificate, and whose clients it lets in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


# A refused connection of aiokafka is closed when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow(8)
async def test_a_renewed_certificate_is_taken_up_by_a_restart(local_at, door, tmp_path):
    before, after = Authority(tmp_path / "before", "Old"), Authority(tmp_path / "after", "New")
    server = before.issue("broker")
    mine = tmp_path / "mine.pem", tmp_path / "mine.key"
    for issued, mounted in zip(before.issue("client"), mine, strict=True):
        shutil.copy(issued, mounted)
    door.context = who_comes_by(before, *server)
    await door.open()
    door.leads_to = free_port()
    await local_at(door.leads_to, door.port)
    settings = settings_for(
        f"127.0.0.1:{door.port}",
        "renewed",
        kafka_security_protocol="SSL",
        kafka_ssl_cafile=before.certificate,
        kafka_ssl_certfile=mine[0],
        kafka_ssl_keyfile=mine[1],
    )
    async with watching(settings) as (watch, reasons):
        await until(lambda: watch._is_connected)
        assert watch.trouble is None
        await door.close()
        door.context = who_comes_by(after, *server)
        await door.open()
        await until(lambda: watch.trouble and "FRESHET_KAFKA_SSL_CERTFILE" in watch.trouble)
        assert reasons == []
        for issued, mounted in zip(after.issue("client"), mine, strict=True):
            shutil.copy(issued, mounted)
        await until(lambda: reasons)
        assert "renewed" in reasons[0]
