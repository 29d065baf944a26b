"""Waiting for a server that is away."""

import asyncio

import pytest

from shared.runtime.retrying import LONGEST_WAIT_SECONDS, until_it_passes


class Away(Exception):
    pass


@pytest.fixture
def waits(monkeypatch):
    """How long was waited; nobody does wait."""
    waited = []

    async def sleep(seconds, *_rest):
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waited


async def attempt(attempts, times_away, error=Away):
    tries = 0
    async for one in attempts:
        with one:
            tries += 1
            if tries <= times_away:
                raise error(f"try {tries}")
    return tries


def is_away(error):
    return isinstance(error, Away)


async def test_it_tries_until_the_server_is_back_and_never_waits_long(waits):
    assert await attempt(until_it_passes(None, is_away), times_away=40) == 41

    assert len(waits) == 40
    assert max(waits) <= LONGEST_WAIT_SECONDS
    assert max(waits[:3]) < 1.0 < max(waits)  # quick at first


async def test_what_waiting_cannot_help_is_raised_at_once(waits):
    with pytest.raises(ValueError, match="try 1"):
        await attempt(until_it_passes(None, is_away), times_away=2, error=ValueError)

    assert not waits


async def test_a_stop_ends_it_with_the_last_error(waits):
    stopping = asyncio.Event()

    def stop_soon(error):
        if str(error) == "try 3":
            stopping.set()

    with pytest.raises(Away, match="try 4"):
        await attempt(until_it_passes(stopping, is_away, stop_soon), times_away=10)


async def test_patience_ends_it_with_the_last_error(waits):
    with pytest.raises(Away, match="try 1"):
        await attempt(until_it_passes(None, is_away, patience_seconds=0.0), times_away=10)
