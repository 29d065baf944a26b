"""A client of the frontier's that is made from the API's description, and a frontier to talk to."""

import asyncio
import contextlib
import os
import time
import uuid

import grpc
from google.protobuf.message_factory import GetMessageClass
from workers import WorkerProcess, reader

from services.frontier.api import urlfrontier_pb2 as api
from shared.contracts.codec import decode
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS
from shared.runtime.publisher import Publisher

# Other tests fork; gRPC need not be told, and say so, each time.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


class Client:
    """Each call of the API by its name."""

    def __init__(self, channel) -> None:
        service = api.DESCRIPTOR.services_by_name["URLFrontier"]
        for method in service.methods:
            kinds = {
                (False, False): channel.unary_unary,
                (False, True): channel.unary_stream,
                (True, True): channel.stream_stream,
            }
            call = kinds[method.client_streaming, method.server_streaming](
                f"/{service.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    async def urls(self, **params) -> list[api.URLInfo]:
        """What GetURLs hands out."""
        return [info async for info in self.GetURLs(api.GetParams(**params))]

    async def urls_until(self, count: int, **params) -> list[api.URLInfo]:
        """So many URLs, as they come."""
        deadline, got = time.monotonic() + 60, []
        while len(got) < count:
            assert time.monotonic() < deadline, f"only {len(got)} came"
            got += await self.urls(**params) or await asyncio.sleep(0.05, [])
        return got

    async def put(self, *items: api.URLItem) -> dict[str, str]:
        """What PutURLs acknowledges: id → status."""
        acks = [ack async for ack in self.PutURLs(iter(items))]
        return {ack.ID: api.AckMessage.Status.Name(ack.status) for ack in acks}


def known(info: api.URLInfo, refetch: int = 1, **metadata: str) -> api.URLItem:
    """A known URL, with more metadata: `fetch_statusCode` is `fetch.statusCode`."""
    more = {
        key.replace("_", ".").replace("--", "-"): api.StringList(values=[value])
        for key, value in metadata.items()
    }
    copy = api.URLInfo(url=info.url, key=info.key, crawlID=info.crawlID)
    for key, values in (dict(info.metadata) | more).items():
        copy.metadata[key].CopyFrom(values)
    return api.URLItem(
        known=api.KnownURLItem(info=copy, refetchable_from_date=refetch), ID=info.url
    )


class Frontier:
    """The worker, who asks it, and whom it asks."""

    def __init__(self, process: WorkerProcess, settings, publisher: Publisher) -> None:
        self.process = process
        self.settings = settings
        self._publisher = publisher
        self.address = f"127.0.0.1:{settings.frontier_port}"

    @contextlib.asynccontextmanager
    async def client(self):
        async with grpc.aio.insecure_channel(self.address) as channel:
            yield Client(channel)

    async def ask(self, *urls: str, seconds: float = 120.0, later: float = 0.0) -> list[str]:
        """Ask for pages, as a scheduler does so much later; returns the requests' ids."""
        ids = []
        for url in urls:
            now, host = time.time() + later, url.split("/")[2]
            ids.append(uuid.uuid4().hex)
            request = CrawlRequest(ids[-1], 1, url, host, now, now + seconds, 1.0, 1.0, "value")
            await (await self._publisher.send_for_host(CRAWL_REQUESTS, host, request))
        return ids

    async def waiting(self, count: int) -> None:
        """Until it has read so many requests that nobody was given."""
        said = f"freshet_frontier_waiting_requests {float(count)}".encode()
        deadline = time.monotonic() + 60
        while said not in (await self.process.get("/metrics"))[1].splitlines():
            assert time.monotonic() < deadline, f"there are not {count} waiting requests"
            await asyncio.sleep(0.05)

    async def outcomes(self, count: int) -> dict[str, CrawlOutcome]:
        """URL → outcome; so many, no more."""
        async with reader(self.settings, CRAWL_OUTCOMES) as topic:
            records = await topic.until(lambda got: len(got) >= count)
        found = [decode(CrawlOutcome, record.value) for record in records]
        assert len(found) == count
        return {outcome.url: outcome for outcome in found}
