"""Whoever sends too fast is told when to come again, by each way in; others are served."""

import hashlib
import hmac
import json
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from pydantic import SecretStr

from services.receiver.bodies import Bodies
from services.receiver.indexnow.keys import Verdict
from services.receiver.pages import Pages, Parts, answered
from services.receiver.rates import Rates
from services.receiver.tokens import Tokens
from services.receiver.visitors import Proxies
from services.receiver.websub.pages import HubPages
from shared.runtime.settings import Settings
from shared.store.subscriptions import ACTIVE, Subscription

KEY = "0123456789abcdef"
SECRET = "s"
CALL = (
    "<methodCall><methodName>weblogUpdates.ping</methodName><params><param><value>A</value>"
    "</param><param><value>https://{}/</value></param></params></methodCall>"
)
ENGINE = "engine.example"


class Receiver:
    """Its pages; each sender may say one URL now, and the next in a minute."""

    def __init__(self):
        self.verdict = Verdict.VALID
        self.sent = []
        rates, bodies, proxies = Rates(1 / 60), Bodies(100_000), Proxies(["127.0.0.1"])
        keys = SimpleNamespace(verdict=self.verdict_of)
        engines = SimpleNamespace(known=lambda host, *_: host.endswith(ENGINE))
        tokens = Tokens({"cms": SecretStr("one"), "shop": SecretStr("two")})
        parts = Parts(Settings(), self, bodies, keys, engines, rates, tokens, proxies)
        subscriptions = SimpleNamespace(knows=lambda _: True, find=self.find)
        hubs = HubPages(subscriptions, self, bodies, 9e9, 9e9, rates, proxies)
        self.application = web.Application(middlewares=[answered])
        self.application.add_routes([*Pages(parts).routes(), *hubs.routes()])

    async def verdict_of(self, *_):
        return self.verdict

    async def find(self, own_id):
        topic = f"https://{own_id[0]}.example/feed"
        return Subscription(own_id, topic, None, "", topic, SECRET, ACTIVE, "", 0, 9e9)

    async def send(self, source, pings):
        """As the sender."""
        self.sent += [(source, ping.url) for ping in pings]


@pytest.fixture
async def receiver():
    made = Receiver()
    async with TestClient(TestServer(made.application, port=0)) as made.client:
        yield made


def index_now(host, query=""):
    body = {"host": host, "key": KEY, "urlList": [f"https://{host}/"]}
    return f"/indexnow{query}", json.dumps(body), {}


def weblog(host, number):
    return "/RPC2", CALL.format(host), {"X-Forwarded-For": f"192.0.2.{number}"}


def unchecked(host, number):
    path, body, _ = index_now(host)
    return path, body, {"X-Forwarded-For": f"192.0.2.{number}"}


def line(token, host):
    said = json.dumps({"url": f"https://{host}/"})
    return "/signals", said, {"Authorization": f"Bearer {token}"}


def event(token, host):
    said = {"specversion": "1.0", "id": "1", "source": "x", "type": "t"}
    said |= {"subject": f"https://{host}/", "data": {"url": f"https://{host}/"}}
    kind = {"Content-Type": "application/cloudevents+json"}
    return "/events", json.dumps(said), kind | {"Authorization": f"Bearer {token}"}


def content(number):
    signature = hmac.new(SECRET.encode(), b"new", hashlib.sha256).hexdigest()
    return f"/websub/{number:032}", "new", {"X-Hub-Signature": f"sha256={signature}"}


@pytest.mark.parametrize(
    ("verdict", "first", "again", "other", "source"),
    [
        (
            Verdict.VALID,
            index_now("a.example"),
            index_now("a.example"),
            index_now("b.example"),
            "indexnow",
        ),
        (
            Verdict.PENDING,
            unchecked("a.example", 1),
            unchecked("b.example", 1),
            unchecked("b.example", 2),
            "indexnow-unchecked",
        ),
        (
            Verdict.INVALID,
            index_now(ENGINE, "?noreping"),
            index_now(ENGINE, "?noreping"),
            index_now(f"other-{ENGINE}", "?noreping"),
            "indexnow-shared",
        ),
        (
            Verdict.VALID,
            weblog("a.example", 1),
            weblog("b.example", 1),
            weblog("c.example", 2),
            "weblog-ping",
        ),
        (
            Verdict.VALID,
            line("one", "a.example"),
            line("one", "b.example"),
            line("two", "a.example"),
            "cms",
        ),
        (
            Verdict.VALID,
            event("one", "a.example"),
            event("one", "b.example"),
            event("two", "a.example"),
            "cms",
        ),
        (Verdict.VALID, content(1), content(1), content(2), "websub"),
    ],
    ids=["host", "address", "engine", "weblog", "lines", "events", "hub"],
)
async def test_by_each_way_in_a_sender_has_so_much_and_another_is_not_in_its_way(
    receiver, verdict, first, again, other, source
):
    receiver.verdict = verdict

    async def posted(path, body, headers):
        async with receiver.client.post(path, data=body, headers=headers) as answer:
            return answer.status, answer.headers.get("Retry-After")

    assert (await posted(*first))[0] in (200, 202)
    assert receiver.sent[0][0] == source
    status, wait = await posted(*again)
    assert (status, len(receiver.sent)) == (429, 1)
    assert 1 <= int(wait) <= 60
    assert (await posted(*other))[0] in (200, 202)
    assert len(receiver.sent) == 2
