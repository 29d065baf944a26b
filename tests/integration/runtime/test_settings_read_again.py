"""A worker reads its settings again on SIGHUP: what it takes, what it names, what it refuses."""

import asyncio
import json
import time
import uuid

import pytest
from workers import reader, settings_for, worker

from shared.contracts.codec import encode
from shared.contracts.messages import Signal
from shared.contracts.topics import DEAD_LETTERS, PAGE_SIGNALS, SIGNALS
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher

OLD, NEW = "the-old-secret", "the-new-secret"
SECRETS_FILE = "FRESHET_SIGNAL_SOURCE_KEYS_FILE"


@pytest.fixture
async def settings(local_broker):
    prefix = f"again-{uuid.uuid4().hex[:8]}"
    settings = settings_for(local_broker.bootstrap_servers, prefix)
    await ensure_topics(settings)
    return settings


class Files:
    """The operator's files."""

    def __init__(self, directory):
        self._secrets, self._file = directory / "keys.json", directory / "freshet.toml"
        self.variables = {
            SECRETS_FILE: str(self._secrets),
            "FRESHET_SETTINGS_FILE": str(self._file),
        }

    def write(self, key, lines=""):
        self._secrets.write_text(json.dumps({"cms": key}))
        self._file.write_text(lines)


async def ping(settings, number, key):
    """A signal of the source, with a key."""
    publisher = Publisher(settings)
    await publisher.start()
    value = encode(Signal(f"https://a.example/{number}", "cms"))
    headers = [("source-key", key.encode())]
    await (await publisher.send(SIGNALS, b"a", value, headers=headers))
    await publisher.stop()


async def until_said(process, text, times=1):
    """Wait until a worker's log says something; the line."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = [line for line in process.log.splitlines() if text in line]
        if len(lines) >= times:
            return json.loads(lines[-1])
        await asyncio.sleep(0.05)
    raise AssertionError(f"it does not say {text!r}:\n{process.log}")


async def test_a_new_key_holds_and_the_old_one_does_not_without_a_restart(settings, tmp_path):
    files = Files(tmp_path)
    files.write(OLD)
    with worker("ingester", settings, tmp_path, variables=files.variables) as ingester:
        await ingester.ready()
        async with reader(settings, PAGE_SIGNALS) as taken, reader(settings, DEAD_LETTERS) as bad:
            await ping(settings, 1, OLD)
            await ping(settings, 2, NEW)
            await taken.until(lambda found: len(found) == 1)
            await bad.until(lambda found: len(found) == 1)

            files.write(NEW, "batch_linger_seconds = 0.5\n")
            ingester.hang_up()
            said = await until_said(ingester, "settings read again")
            assert said["changed"] == ["signal_source_keys"]
            said = await until_said(ingester, "need a restart")
            assert said["settings"] == ["batch_linger_seconds"]
            await ping(settings, 3, OLD)
            await ping(settings, 4, NEW)
            await taken.until(lambda found: len(found) == 2)
            await bad.until(lambda found: len(found) == 2)

            # A file that is wrong: all stays as it was, the key as well.
            files.write(OLD, "signals_per_source_per_second = -1\n")
            ingester.hang_up()
            said = await until_said(ingester, "the old stay")
            assert "signals_per_source_per_second" in said["reason"]
            files.write(OLD, "this is no TOML")
            ingester.hang_up()
            said = await until_said(ingester, "the old stay", times=2)
            assert "freshet.toml" in said["reason"]
            await ping(settings, 5, NEW)
            found = await taken.until(lambda found: len(found) == 3)
        urls = sorted(json.loads(record.value)["url"] for record in found)
        assert urls == [f"https://a.example/{number}" for number in (1, 4, 5)]
        assert ingester.poll() is None
        assert OLD not in ingester.log
        assert NEW not in ingester.log
