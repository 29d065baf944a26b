"""Every call of URLFrontier's API, and what answers it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc

from services.frontier.api.urlfrontier_pb2 import (
    AckMessage,
    Active,
    BatchAck,
    BlockQueueParams,
    Boolean,
    DiscoveredBatch,
    Empty,
    Local,
    LogLevelParams,
    QueueDelayParams,
    StringList,
    URLItem,
)
from services.frontier.giving import Giving
from services.frontier.hosts import Hosts
from services.frontier.looking import Looking
from services.frontier.names import Names
from services.frontier.putting import Putting
from services.frontier.refusing import Refused
from services.frontier.room import Room
from services.frontier.streams import answered

MOST_PUT: Final = 1_000
"""Items of one stream that are not acknowledged: no more are read meanwhile."""

MOST_DISCOVERED: Final = 500
"""Of those, discovered URLs. They wait for the database, which may take minutes when it counts
pages; outcomes need it not, and come through."""

MOST_BATCHES: Final = 16

_LEVELS: Final = {"TRACE": logging.DEBUG, "WARN": logging.WARNING}

NO_COUNTERPART: Final = {
    "DeleteCrawl": "there is one crawl, with all pages: remove pages, by `freshet pages remove`",
    "DeleteQueue": "pages are removed one by one: `freshet pages remove`; to leave a host alone, "
    "use BlockQueueUntil",
    "PurgeURLs": "no page is too old to be kept fresh: `freshet pages remove` removes one",
    "SetCrawlLimit": "pages are crawled again and again, within the budget: a host's rate is set "
    "by `freshet hosts limit`",
}
"""Calls that a scheduler by value has nothing for, and what there is instead."""


class Service:
    """Brings the parts together."""

    def __init__(
        self,
        address: str,
        giving: Giving,
        putting: Putting,
        hosts: Hosts,
        looking: Looking,
        names: Names,
        stopping: asyncio.Event,
    ) -> None:
        self._address = address
        self._giving = giving
        self._putting = putting
        self._hosts = hosts
        self._looking = looking
        self._names = names
        self._stopping = stopping

    def methods(self) -> Mapping[str, Any]:
        """Name of each call → what answers it: of its message, or of the client's stream."""
        return {
            "ListNodes": self._list_nodes,
            "ListCrawls": self._list_crawls,
            "ListQueues": self._looking.queues,
            "GetURLs": self._giving.get,
            "PutURLs": self._put,
            "PutDiscovered": self._put_batches,
            "GetStats": self._looking.stats,
            "BlockQueueUntil": self._block,
            "SetActive": self._set_active,
            "GetActive": self._get_active,
            "SetDelay": self._delay,
            "SetLogLevel": self._set_log_level,
            "GetURLStatus": self._looking.status,
            "ListURLs": self._looking.urls,
            "CountURLs": self._looking.count,
        } | {name: _refusing(name, text) for name, text in NO_COUNTERPART.items()}

    async def _list_nodes(self, _request: Empty) -> StringList:
        return StringList(values=[self._address])

    async def _list_crawls(self, _request: Local) -> StringList:
        return StringList(values=[self._names.crawl_id])

    def _put(self, items: AsyncIterator[URLItem]) -> AsyncIterator[AckMessage]:
        room = Room(MOST_DISCOVERED)
        return answered(items, lambda item: self._putting.put(item, room), MOST_PUT, self._stopping)

    def _put_batches(self, batches: AsyncIterator[DiscoveredBatch]) -> AsyncIterator[BatchAck]:
        return answered(batches, self._putting.put_batch, MOST_BATCHES, self._stopping)

    async def _block(self, request: BlockQueueParams) -> Empty:
        await self._hosts.block(request)
        return Empty()

    async def _delay(self, request: QueueDelayParams) -> Empty:
        await self._hosts.delay(request)
        return Empty()

    async def _set_active(self, request: Active) -> Empty:
        self._giving.set_active(request.state)
        return Empty()

    async def _get_active(self, _request: Local) -> Boolean:
        return Boolean(state=self._giving.is_active)

    async def _set_log_level(self, request: LogLevelParams) -> Empty:
        known = logging.getLogger().manager.loggerDict
        if request.package and request.package not in known:
            raise Refused(
                grpc.StatusCode.NOT_FOUND,
                "no part has this name: parts are named as services.frontier is, or aiokafka",
            )
        if request.level not in LogLevelParams.Level.values():
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"no level is {request.level}: {', '.join(LogLevelParams.Level.keys())}",
            )
        level = LogLevelParams.Level.Name(request.level)
        logging.getLogger(request.package or None).setLevel(_LEVELS.get(level, level))
        return Empty()


def _refusing(name: str, text: str) -> Any:
    async def refuse(_request: object) -> None:
        raise Refused(grpc.StatusCode.UNIMPLEMENTED, f"{name}: {text}")

    return refuse
