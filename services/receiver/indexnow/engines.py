"""Search engines that pass on what they were told: `POST /indexnow?noreping`.

Each engine publishes who it is, <https://www.indexnow.org/searchengines>: a list names all of them,
and a file of each has its host, the keys that it uses, and the addresses that it calls from. A
sharing post carries the engine's host and one of its keys, and URLs of any hosts, whose keys that
engine has checked. Keys that are published prove nothing alone; so the address must be one of the
engine's too.
"""

import asyncio
import ipaddress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from services.receiver.visitors import place_of
from shared.runtime.fetching import Fetcher, FetchFailed

log = structlog.get_logger(__name__)

READ_AGAIN_SECONDS: Final = 3600.0
TRY_AGAIN_SECONDS: Final = 60.0
"""Where something could not be read; then after twice as long each time, up to an hour."""

MOST_ENGINES: Final = 100
_MOST_BYTES: Final = 256 * 1024

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine publishes."""

    host: str
    keys: frozenset[str]
    networks: tuple[Network, ...]

    def sent_from(self, address: str, key: str) -> bool:
        """Whether a post from an address, with a key, is the engine's."""
        place = place_of(address)
        if place is None or key not in self.keys:
            return False
        return any(place in network for network in self.networks)


class Engines:
    """The engines of the list, read again now and then."""

    def __init__(self, fetcher: Fetcher, list_url: str) -> None:
        """Make it.

        Args:
            fetcher: started before `run`.
            list_url: of the list; empty: no engine is known.
        """
        self._fetcher = fetcher
        self._list_url = list_url
        self._engines: dict[str, Engine] = {}
        """By their names in the list."""

    def known(self, host: str, key: str, address: str) -> bool:
        """Whether a sharing post is from an engine."""
        return any(
            engine.host == host and engine.sent_from(address, key)
            for engine in self._engines.values()
        )

    async def run(self) -> None:
        """Read the list, again and again; ends at once where there is none."""
        again = TRY_AGAIN_SECONDS
        while self._list_url:
            if await self._read():
                wait, again = READ_AGAIN_SECONDS, TRY_AGAIN_SECONDS
            else:
                wait, again = again, min(2.0 * again, READ_AGAIN_SECONDS)
            await asyncio.sleep(wait)

    async def _read(self) -> bool:
        """Read the list and the files that it names; whether all of them could be.

        An engine whose file cannot be read is who it was, as long as the list names it.
        """
        try:
            listed = await self._json(self._list_url)
        except FetchFailed as failure:
            log.warning("the list of search engines cannot be read", reason=str(failure))
            return False
        engines: dict[str, Engine] = {}
        is_whole = True
        for name, url in list(listed.items())[:MOST_ENGINES]:
            try:
                engines[name] = engine_of(await self._json(str(url)))
            except (FetchFailed, ValueError) as fault:
                is_whole, former = False, self._engines.get(name)
                if former is not None:
                    engines[name] = former
                known = former is not None
                log.warning(
                    "a search engine cannot be read", engine=name, known=known, reason=str(fault)
                )
        self._engines = engines
        log.info("search engines known", hosts=sorted(one.host for one in engines.values()))
        return is_whole

    async def _json(self, url: str) -> dict[str, Any]:
        answer = await self._fetcher.get(
            url, max_bytes=_MOST_BYTES, may_follow=lambda _, target: target.startswith("https://")
        )
        if answer.status != 200:
            raise FetchFailed(f"{url} answers {answer.status}")
        try:
            read = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FetchFailed(f"{url} is no JSON: {error}") from error
        if not isinstance(read, dict):
            raise FetchFailed(f"{url} is no JSON object")
        return read


def engine_of(published: dict[str, Any]) -> Engine:
    """An engine, from its file.

    Args:
        published: `host`, `publicKeys` (texts, or objects with `key`) and `notifierIPs` (objects
            with `ipv4Prefix` or `ipv6Prefix`).

    Raises:
        ValueError: something is missing, or is not what it should be.
    """
    host, keys, prefixes = (published.get(n) for n in ("host", "publicKeys", "notifierIPs"))
    if not isinstance(host, str) or not isinstance(keys, list) or not isinstance(prefixes, list):
        raise ValueError("it has not all of `host`, `publicKeys` and `notifierIPs`")  # noqa: TRY004 - a fault of the text
    named = [entry.get("key") if isinstance(entry, dict) else entry for entry in keys]
    written = [
        prefix
        for entry in prefixes
        if isinstance(entry, dict)
        for prefix in (entry.get("ipv4Prefix"), entry.get("ipv6Prefix"))
        if isinstance(prefix, str)
    ]
    return Engine(
        host.lower(),
        frozenset(key for key in named if isinstance(key, str) and key),
        tuple(ipaddress.ip_network(prefix, strict=False) for prefix in written),
    )
