"""A site on loopback."""

import pytest
from aiohttp import web
from sites import WatchedSite


@pytest.fixture
async def site():
    """A site whose files a test sets."""
    made = WatchedSite()
    runner = web.ServerRunner(web.Server(made.answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    await runner.cleanup()
