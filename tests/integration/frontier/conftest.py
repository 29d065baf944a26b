"""A frontier as a process of its own."""

import contextlib
import uuid

import pytest
from frontier_client import Frontier
from pydantic import SecretStr
from workers import settings_for, worker

from deploy.local.process import free_port
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher

NOBODY = SecretStr("postgresql://nobody@127.0.0.1:1/none")


@pytest.fixture
async def start(local_broker, tmp_path):
    """A function that starts a frontier with some settings, and waits until it listens."""
    async with contextlib.AsyncExitStack() as stack:
        prefix = f"frontier-{uuid.uuid4().hex[:8]}"

        async def starting(**more) -> Frontier:
            alone = more.pop("alone", False)
            settings = settings_for(
                more.pop("bootstrap_servers", local_broker.bootstrap_servers),
                prefix,
                **({"database_url": NOBODY, "frontier_port": free_port()} | more),
            )
            await ensure_topics(settings)
            process = stack.enter_context(worker("frontier", settings, tmp_path, alone=alone))
            publisher = Publisher(settings)
            await publisher.start()
            stack.push_async_callback(publisher.stop)
            await process.ready()
            return Frontier(process, settings, publisher)

        yield starting
