"""A connection to a database that hangs is given up, and closed once nothing uses it any more."""

import asyncio

import pytest

from services.coordinator.leadership import _leave


class Connection:
    """One that tells whether it was closed."""

    closed = False

    async def close(self):
        self.closed = True


@pytest.mark.parametrize("process_ends", [False, True])
async def test_it_is_closed_when_what_hangs_has_ended_or_the_process_ends(process_ends):
    asking, connection = asyncio.get_running_loop().create_future(), Connection()
    leaving = asyncio.ensure_future(_leave(asking, connection))
    await asyncio.sleep(0)
    assert not connection.closed
    (leaving if process_ends else asking).cancel()
    await asyncio.wait([leaving])
    assert connection.closed
