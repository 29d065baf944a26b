"""Estimators on a migrated database, without a broker."""

import asyncio

import pytest
from estimator_world import DAY, NOW, SHARDS, Broker

from services.estimator.handler import EstimatorHandler
from services.estimator.refitting import Refits
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings


@pytest.fixture
def settings(migrated_url):
    return Settings(database_url=migrated_url, partitions=SHARDS)


@pytest.fixture
def kafka():
    return Broker()


@pytest.fixture
async def begin(settings):
    """Starts estimators that keep some pages in memory."""
    running = []

    async def start(kafka, most, shards=range(SHARDS)):
        bounded = settings.model_copy(update={"estimator_resident_pages": most})
        handler = EstimatorHandler(bounded, ManualClock(NOW + 30 * DAY), kafka, asyncio.Event())
        running.append(handler)
        await handler.open()
        await handler.assigned(set(shards))
        return handler

    yield start
    for handler in running:
        await handler.close()


@pytest.fixture
def start(settings, begin):
    """Starts estimators that keep as many pages in memory as the settings say."""

    async def begin_with(kafka, shards=range(SHARDS)):
        return await begin(kafka, settings.estimator_resident_pages, shards)

    return begin_with


@pytest.fixture
def no_refits(monkeypatch):
    monkeypatch.setattr(Refits, "are_due", lambda *_: False)
