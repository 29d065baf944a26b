"""Subscriptions while the database is away: what is known goes on, and pings wait for nothing."""

import contextlib

import psycopg
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from services.receiver.bodies import Bodies
from services.receiver.pages import answered
from services.receiver.rates import Rates
from services.receiver.refusing import Refused
from services.receiver.visitors import Proxies
from services.receiver.websub import subscriptions as module
from services.receiver.websub.pages import HubPages
from services.receiver.websub.subscriptions import Subscriptions
from shared.store import questions
from shared.store.subscriptions import ACTIVE, Subscription

ROW = Subscription(
    "0" * 32, "https://a.example/", None, "", "https://a.example/", "s", ACTIVE, "", 0, 9e9
)


@pytest.fixture
def database(monkeypatch):
    """A database with one row, that can be away."""

    class Database:
        is_away = False
        questions = 0

        @contextlib.contextmanager
        def connect(self, *_, **more):
            self.questions += 1
            if self.is_away:
                raise psycopg.OperationalError("nobody there")
            yield self

    made = Database()
    monkeypatch.setattr(questions, "connect", made.connect)
    monkeypatch.setattr(questions, "require_schema", lambda _connection: None)
    monkeypatch.setattr(
        module, "find_subscription", lambda _, own_id: ROW if own_id == ROW.id else None
    )
    return made


async def test_what_was_read_before_counts_while_the_database_is_away(database, monkeypatch):
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)
    known = Subscriptions("")
    assert await known.find(ROW.id) == ROW
    assert await known.find("1" * 32) is None
    database.is_away = True
    assert await known.find(ROW.id) == ROW
    with pytest.raises(Refused) as refused:
        await known.find("1" * 32)
    assert refused.value.status == 503
    known.stop()


async def test_a_row_is_read_once_in_a_while_and_anew_when_it_has_changed(database):
    known = Subscriptions("")
    for _ in range(5):
        assert await known.find(ROW.id) == ROW
    assert database.questions == 1
    known.forget(ROW.id)
    await known.find(ROW.id)
    assert database.questions == 2
    known.stop()


async def test_made_up_addresses_cost_the_database_little_and_those_that_are_known_go_on(database):
    known = Subscriptions("")
    await known.find(ROW.id)
    pages = HubPages(known, None, Bodies(100_000), 9e9, 9e9, Rates(1.0), Proxies([]))
    application = web.Application(middlewares=[answered])
    application.add_routes(pages.routes())
    async with TestClient(TestServer(application, port=0)) as client:

        async def status(own_id):
            async with client.post(f"/websub/{own_id}") as answer:
                return answer.status

        made_up = [await status(f"{number:032x}") for number in range(1, 1_001)]
        assert {410, 429} == set(made_up)
        assert database.questions < 500
        assert await status(ROW.id) == 202
    known.stop()
