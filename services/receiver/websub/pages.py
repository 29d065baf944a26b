"""Where hubs call: to ask whether we mean it, and with content."""

import re
import time
from collections.abc import Container, Mapping
from functools import partial
from typing import Final

import psycopg
import structlog
from aiohttp import web

from services.receiver import metrics
from services.receiver.bodies import Bodies
from services.receiver.rates import Rates
from services.receiver.refusing import Refused, too_fast
from services.receiver.sending import Sender, bytes_of
from services.receiver.visitors import address_of, visitor_of
from services.receiver.websub.content import is_signed, pings_of
from services.receiver.websub.subscriptions import (
    REFUSED_SECONDS,
    RETRY_SECONDS,
    Subscriptions,
    renewal_after,
)
from shared.contracts.identity import BadUrl, identify
from shared.runtime.pings import Ping
from shared.runtime.wall_time import WALL
from shared.store.subscriptions import (
    UNWANTED,
    Subscription,
    confirm_subscription,
    drop_subscription,
    refuse_subscription,
)

log = structlog.get_logger(__name__)

WEBSUB: Final = "websub"
"""The source of what hubs send."""

STRANGERS_PER_SECOND: Final = 1.0
"""Calls from an address that lead to no subscription."""

LOOKUPS_PER_SECOND: Final = 10.0
"""Calls from an address for which the database has to be asked whether they lead to one: each takes
a connection."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_LEASE: Final = re.compile(r"[1-9][0-9]{0,8}")


class HubPages:
    """The callback, an address for each subscription."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        sender: Sender,
        bodies: Bodies,
        lease_seconds: float,
        max_age_seconds: float,
        rates: Rates,
        proxies: Container[str],
    ) -> None:
        """Make it.

        Args:
            subscriptions: the rows.
            sender: of signals.
            bodies: reads what is posted.
            lease_seconds: what hubs are asked for; it holds where one does not say.
            max_age_seconds: of signals.
            rates: of a subscription.
            proxies: of ours.
        """
        self._subscriptions = subscriptions
        self._sender = sender
        self._bodies = bodies
        self._lease_seconds = lease_seconds
        self._max_age_seconds = max_age_seconds
        self._rates = rates
        self._proxies = proxies
        self._strangers = Rates(STRANGERS_PER_SECOND)
        self._lookups = Rates(LOOKUPS_PER_SECOND)

    def routes(self) -> list[web.RouteDef]:
        """Both methods of the callback."""
        return [
            web.get("/websub/{id}", self.verify, allow_head=False),
            web.post("/websub/{id}", self.content),
        ]

    async def verify(self, request: web.Request) -> web.StreamResponse:
        """Whether we mean it, `hub.challenge`; or that the hub does not want to, `denied`."""
        subscription = await self._of(request)
        query = request.query
        mode, topic = query.get("hub.mode"), query.get("hub.topic")
        if subscription is None or not topic or not _is_same(topic, subscription.hub_topic):
            raise Refused(404, "nothing was asked for here")
        challenge = query.get("hub.challenge", "")
        try:
            meant = await self._answer(subscription, mode, query)
        except psycopg.Error as error:
            raise Refused(503, "it cannot be written down now", RETRY_SECONDS) from error
        finally:
            self._subscriptions.forget(subscription.id)
        if not meant:
            raise Refused(404, "that was not asked for")
        return web.Response(text=challenge)

    async def _answer(
        self, subscription: Subscription, mode: str | None, query: Mapping[str, str]
    ) -> bool:
        """Whether we mean what the hub asks; then it is written down."""
        ask = self._subscriptions.ask
        if mode == "subscribe":
            lease = _lease(query.get("hub.lease_seconds"), self._lease_seconds)
            now = WALL.now()
            log.info("a hub has granted a subscription", lease_seconds=round(lease))
            renew_at = now + renewal_after(lease, self._lease_seconds)
            return await ask(confirm_subscription, subscription.id, now + lease, renew_at)
        if mode == "unsubscribe" and subscription.state == UNWANTED:
            return await ask(drop_subscription, subscription.id)
        if mode == "denied":
            said = "".join(c for c in query.get("hub.reason", "")[:200] if c.isprintable())
            reason = f"the hub refuses: {said}"
            await ask(refuse_subscription, subscription.id, reason, WALL.now() + REFUSED_SECONDS)
            return True
        return False

    async def content(self, request: web.Request) -> web.StreamResponse:
        """Something is new; 410 where nobody wants to know any more."""
        subscription = await self._of(request)
        if subscription is None or subscription.state == UNWANTED:
            raise Refused(410, "nobody wants this any more")
        async with self._bodies.read(request, self._visitor(request)) as body:
            signature = request.headers.get("X-Hub-Signature", "")
            if not is_signed(signature, subscription.secret, body.text):
                # The protocol wants a success, so that nobody learns secrets by trying.
                metrics.CONTENT_IGNORED.inc()
                log.warning("content of a hub is not signed with our secret, and is left out")
                return web.Response(status=202)
            pings = await body.turned_into(partial(self._pings_of, subscription), bytes_of)
            name = f"subscription {subscription.id}"
            wait = self._rates.wait_for(name, len(pings), time.monotonic())
            if wait:
                raise too_fast("pages of this topic", wait)
            await self._sender.send(WEBSUB, pings)
            return web.Response(status=202)

    def _pings_of(self, subscription: Subscription, text: bytes) -> list[Ping]:
        topic = subscription.hub_topic or subscription.topic
        return pings_of(topic, text, WALL.now(), self._max_age_seconds)

    async def _of(self, request: web.Request) -> Subscription | None:
        subscription_id = request.match_info["id"]
        known, visitor = None, self._visitor(request)
        if _ID.fullmatch(subscription_id):
            if not self._subscriptions.knows(subscription_id):
                wait = self._lookups.wait_for(visitor, 1, time.monotonic())
                if wait:
                    raise too_fast("calls for subscriptions that nobody knows yet", wait)
            known = await self._subscriptions.find(subscription_id)
        if known is None:
            wait = self._strangers.wait_for(visitor, 1, time.monotonic())
            if wait:
                raise too_fast("calls that lead to no subscription", wait)
        return known

    def _visitor(self, request: web.Request) -> str:
        return visitor_of(address_of(request, self._proxies))


def _is_same(topic: str, own: str) -> bool:
    """Whether a hub speaks of a topic; some write its URL as they would."""
    if topic == own:
        return True
    try:
        return identify(topic).url == identify(own).url
    except BadUrl:
        return False


def _lease(said: str | None, asked: float) -> float:
    """Seconds that a hub grants; what was asked for where it does not say, or says that it is over
    at once, as some do that mean no end."""
    return float(said) if said is not None and _LEASE.fullmatch(said) else asked
