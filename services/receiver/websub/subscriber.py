"""Asking hubs: to subscribe, to renew before a lease ends, to end what nobody wants."""

import asyncio
from typing import Final

import psycopg
import structlog

from services.receiver import metrics
from services.receiver.websub.discovery import discover
from services.receiver.websub.subscriptions import REFUSED_SECONDS, Subscriptions, renewal_after
from shared.discovery.links import HEAD_BYTES
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.runtime.wall_time import WALL
from shared.store.questions import take_turns
from shared.store.subscriptions import (
    UNWANTED,
    Subscription,
    count_subscriptions,
    drop_subscription,
    note_asked,
    note_failed,
    note_hub_moved,
    take_due_subscriptions,
)

log = structlog.get_logger(__name__)

TURN_SECONDS: Final = 1.0
AT_ONCE: Final = 10
"""Hubs that are asked at a time."""

FIRST_WAIT_SECONDS: Final = 60.0
LONGEST_WAIT_SECONDS: Final = 6 * 3600.0
"""Between two attempts, each twice as far from the last."""

CLOCKS_DIFFER_SECONDS: Final = 3600.0
"""By so much, at most, those of receivers that are well."""

LAST_WORDS: Final = 4
"""So many times a hub is told that a topic is not wanted; then it is forgotten, and what the hub
still sends is answered with 410."""

_ANSWER_BYTES: Final = 16 * 1024


class Subscriber:
    """Looks after the subscriptions whose time has come."""

    def __init__(
        self, subscriptions: Subscriptions, fetcher: Fetcher, own_url: str, lease_seconds: float
    ) -> None:
        """Make it.

        Args:
            subscriptions: the rows.
            fetcher: started before `run`.
            own_url: where hubs call back, without the path; empty: nothing is subscribed to.
            lease_seconds: what hubs are asked for.
        """
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._own_url = own_url.rstrip("/")
        self._lease_seconds = lease_seconds

    async def run(self) -> None:
        """Look again and again; ends at once where nothing is subscribed to."""
        if self._own_url:
            await take_turns(self._turn, TURN_SECONDS, "subscriptions wait for the database")

    async def _turn(self) -> None:
        due = await self._subscriptions.ask(
            take_due_subscriptions,
            WALL.now(),
            AT_ONCE,
            FIRST_WAIT_SECONDS,
            LONGEST_WAIT_SECONDS,
            latest_seconds(self._lease_seconds),
        )
        await asyncio.gather(*(self._look_after(subscription) for subscription in due))
        for state, count in (await self._subscriptions.ask(count_subscriptions)).items():
            metrics.SUBSCRIPTIONS.labels(state).set(count)

    async def _look_after(self, subscription: Subscription) -> None:
        try:
            if subscription.state == UNWANTED:
                await self._end(subscription)
            else:
                await self._begin(subscription)
        except FetchFailed as failure:
            # A hub answers with what it likes, and PostgreSQL takes no text with a zero in it.
            reason = "".join(c for c in str(failure)[:500] if c.isprintable())
            log.info("a subscription has to wait", topic_host=_host(subscription), reason=reason)
            await self._subscriptions.ask(note_failed, subscription.id, reason)
        except psycopg.Error:
            raise
        except Exception:
            # Of one topic of a stranger's; the others go on.
            log.exception("a subscription fails", topic_host=_host(subscription))
            await self._subscriptions.ask(note_failed, subscription.id, "see the receiver's log")

    async def _begin(self, subscription: Subscription) -> None:
        """Ask for it, or for longer."""
        hub, topic = await self._hub_of(subscription)
        # Noted first: the hub may call back before it answers.
        await self._subscriptions.ask(note_asked, subscription.id, hub, topic)
        self._subscriptions.forget(subscription.id)
        moved_to = await self._tell(hub, "subscribe", topic, subscription)
        if moved_to is not None:
            await self._subscriptions.ask(note_hub_moved, subscription.id, moved_to)
            self._subscriptions.forget(subscription.id)

    async def _hub_of(self, subscription: Subscription) -> tuple[str, str]:
        if subscription.wanted_hub is not None:
            return subscription.wanted_hub, subscription.topic
        answer = await self._fetcher.get(
            subscription.topic, max_bytes=HEAD_BYTES, may_follow=_to_the_web, cut=True
        )
        if answer.status != 200:
            raise FetchFailed(f"the topic answers {answer.status}")
        found = await asyncio.to_thread(
            discover, answer.url, answer.headers.getall("Link", []), answer.body
        )
        if found is None:
            raise FetchFailed("the topic names no hub")
        return found.hub, found.topic

    async def _end(self, subscription: Subscription) -> None:
        # For content that came a moment ago it was read while it was still wanted.
        self._subscriptions.forget(subscription.id)
        if not subscription.hub or subscription.attempts > LAST_WORDS:
            await self._subscriptions.ask(drop_subscription, subscription.id)
            self._subscriptions.forget(subscription.id)
            return
        await self._tell(subscription.hub, "unsubscribe", subscription.hub_topic, subscription)

    async def _tell(
        self, hub: str, mode: str, topic: str, subscription: Subscription
    ) -> str | None:
        """Ask a hub, or the one that it leads to; where that is for good, if it has moved."""
        fields = {
            "hub.callback": f"{self._own_url}/websub/{subscription.id}",
            "hub.mode": mode,
            "hub.topic": topic,
        }
        if mode == "subscribe":
            fields["hub.lease_seconds"] = str(round(self._lease_seconds))
            fields["hub.secret"] = subscription.secret
        answer = await self._fetcher.post(
            hub, fields, max_bytes=_ANSWER_BYTES, may_follow=_to_the_web
        )
        if not 200 <= answer.status < 300:
            said = answer.body[:200].decode("utf-8", "replace").strip()
            raise FetchFailed(f"the hub answers {answer.status}: {said}")
        return answer.moved_to


def latest_seconds(lease_seconds: float) -> float:
    """How far ahead a subscription's time can lie, where hubs are asked for such a lease."""
    renewed = renewal_after(lease_seconds, lease_seconds)
    return max(renewed, REFUSED_SECONDS, LONGEST_WAIT_SECONDS) + CLOCKS_DIFFER_SECONDS


def _to_the_web(_: str, target: str) -> bool:
    return target.startswith(("http://", "https://"))


def _host(subscription: Subscription) -> str:
    """For the log, which has no queries: they may be secrets."""
    return subscription.topic.partition("://")[2].partition("/")[0]
