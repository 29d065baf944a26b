"""A WebSub hub, made from the specification (<https://www.w3.org/TR/websub/>), section 5 and on.

It grants what lease it likes, verifies intent before it believes a request, signs content with the
subscriber's secret, and ends a subscription whose callback answers 410.
"""

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass

import aiohttp
from aiohttp import web


@dataclass
class Granted:
    """One subscription, as its hub knows it."""

    callback: str
    topic: str
    secret: str
    lease_seconds: int
    renewals: int = 0


class Hub:
    """Answers `POST /hub` of a site."""

    def __init__(self, lease_seconds: int | None = None) -> None:
        self.lease_seconds = lease_seconds
        """Granted instead of what is asked for."""
        self.granted: dict[str, Granted] = {}
        """By callback."""
        self.requests: list[dict[str, str]] = []
        self.unverified: list[str] = []
        self.denies: str | None = None
        self._verifying: set[asyncio.Task[None]] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A request to subscribe or unsubscribe: accepted first, verified then."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(form)
        if not form.get("hub.callback") or form.get("hub.mode") not in ("subscribe", "unsubscribe"):
            return web.Response(status=400, text="hub.callback and hub.mode are needed")
        task = asyncio.ensure_future(self._verify(form))
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)
        return web.Response(status=202)

    async def _verify(self, form: dict[str, str]) -> None:
        callback, mode, topic = form["hub.callback"], form["hub.mode"], form["hub.topic"]
        lease = self.lease_seconds or int(form.get("hub.lease_seconds", "864000"))
        query = {"hub.mode": mode, "hub.topic": topic}
        if self.denies is not None:
            await self._call(callback, query | {"hub.mode": "denied", "hub.reason": self.denies})
            return
        challenge = secrets.token_hex(8)
        query |= {"hub.challenge": challenge, "hub.lease_seconds": str(lease)}
        status, text = await self._call(callback, query)
        if not 200 <= status < 300 or text != challenge:
            self.unverified.append(callback)
        elif mode == "unsubscribe":
            self.granted.pop(callback, None)
        else:
            before = self.granted.get(callback)
            renewals = before.renewals + 1 if before is not None else 0
            self.granted[callback] = Granted(
                callback, topic, form.get("hub.secret", ""), lease, renewals
            )

    async def _call(self, callback: str, query: dict[str, str]) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as client,
            client.get(callback, params=query) as answer,
        ):
            return answer.status, await answer.text()

    async def publish(
        self, body: bytes, method: str = "sha256", secret: str | None = None
    ) -> list[int]:
        """Send content to all subscribers; the statuses of their answers."""
        statuses = []
        for granted in list(self.granted.values()):
            key = (secret if secret is not None else granted.secret).encode()
            signature = hmac.new(key, body, getattr(hashlib, method)).hexdigest()
            headers = {
                "Content-Type": "application/atom+xml",
                "Link": f'<http://hub.example/>; rel="hub", <{granted.topic}>; rel="self"',
                "X-Hub-Signature": f"{method}={signature}",
            }
            async with (
                aiohttp.ClientSession() as client,
                client.post(granted.callback, data=body, headers=headers) as answer,
            ):
                statuses.append(answer.status)
                if answer.status == 410:
                    del self.granted[granted.callback]
        return statuses
