"""What no broker takes is not sent for ever: it would keep a place of the crawler."""

import asyncio
from types import SimpleNamespace

from aiokafka.errors import MessageSizeTooLargeError
from scrapy.settings import Settings
from scrapy_freshet.fleet import Fleet
from scrapy_freshet.options import options_of


async def test_a_message_that_is_too_large_is_left_out_and_counted():
    async def send_and_wait(*_, **__):
        raise MessageSizeTooLargeError

    counted = []
    fleet = Fleet(options_of(Settings()), counted.append, lambda: 0.0)
    fleet._producer = SimpleNamespace(send_and_wait=send_and_wait)
    await asyncio.wait_for(fleet._send("discoveries", "a.example", b"x"), 5.0)
    assert counted == ["freshet/send_errors"]
