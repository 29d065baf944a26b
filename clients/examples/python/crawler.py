"""A whole crawler for Freshet in Python: pip install aiokafka aiohttp.

KAFKA_BOOTSTRAP_SERVERS says where Kafka is, FRESHET_TOPIC_PREFIX what topics begin with. Before
you let it out, let it refuse addresses that are not public, and obey robots.txt.
"""

import asyncio
import hashlib
import json
import logging
import os
import time
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

PREFIX = os.environ.get("FRESHET_TOPIC_PREFIX", "")
KAFKA = {"bootstrap_servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")}


class Answer(aiohttp.ClientResponse):
    """An answer that remembers from which address it came."""

    address: str | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Note the address, while there is a connection."""
        peer = connection.transport and connection.transport.get_extra_info("peername")
        self.address = peer[0] if peer else None
        return await super().start(connection)


async def note(_client: object, context: Any, step: aiohttp.TraceRequestRedirectParams) -> None:
    """Note that a page leads on: its own host has answered, whatever becomes of it elsewhere."""
    outcome = context.trace_request_ctx
    if step.response.url.host_port_subcomponent == outcome["host"]:
        outcome["http_status"] = step.response.status


async def crawl(client: aiohttp.ClientSession, request: dict[str, Any]) -> dict[str, Any]:
    """Fetch a page; returns the outcome."""
    outcome = {key: request[key] for key in ("request_id", "url", "host")}
    outcome |= {"crawled_at": time.time(), "result": "failed"}
    try:
        async with client.get(request["url"], trace_request_ctx=outcome) as answer:
            there = answer.url.host_port_subcomponent
            is_own = not answer.history or there == request["host"]
            has_content = 200 <= answer.status < 300  # a redirect that leads nowhere has none
            # That another host is busy or broken is nothing that the page's own is left alone for.
            if is_own or has_content or answer.status in {404, 410}:
                outcome["http_status"] = answer.status
            if answer.address and not answer.history:  # else another host may have answered
                outcome["group"] = answer.address
            if answer.status in {404, 410}:
                outcome["result"] = "gone"
            elif answer.status == 304:
                outcome["result"] = "not_modified"
            elif has_content:
                digest = hashlib.sha256()
                async for chunk in answer.content.iter_chunked(1 << 16):
                    digest.update(chunk)
                outcome["digest"] = digest.hexdigest()
                del outcome["result"]
            elif is_own and answer.headers.get("Retry-After", "").isdecimal():
                seconds = int(answer.headers["Retry-After"][:9])
                outcome["retry_after_seconds"] = min(seconds, 86_400)
    # Pages may lead to addresses that are none.
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        logging.warning("%s: %r", request["url"], error)
    return outcome


async def main() -> None:
    """Answer requests until stopped."""
    # Positions are committed by hand, once the outcomes are there: what is not answered is read
    # again, by this crawler or another one of the group.
    consumer = AIOKafkaConsumer(
        PREFIX + "crawl-requests",
        group_id=PREFIX + "crawlers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **KAFKA,
    )
    # aiokafka's default partitioner is Kafka's, so the host as key leads to the right partition.
    producer = AIOKafkaProducer(acks="all", **KAFKA)
    timeout, tracing = aiohttp.ClientTimeout(total=60), aiohttp.TraceConfig()
    tracing.on_request_redirect.append(note)
    async with (
        consumer,
        producer,
        aiohttp.ClientSession(
            timeout=timeout, response_class=Answer, trace_configs=[tracing]
        ) as client,
    ):
        while True:
            read = await consumer.getmany(timeout_ms=500, max_records=50)
            records = [record for part in read.values() for record in part]
            asked = [(json.loads(record.value), record) for record in records]
            # What is late was asked for again.
            fresh = [one for one in asked if one[0]["deadline_at"] > time.time()]
            crawls = (crawl(client, request) for request, _ in fresh)
            for (_, record), outcome in zip(fresh, await asyncio.gather(*crawls), strict=True):
                value, key = json.dumps(outcome).encode(), outcome["host"].encode()
                # A request that is traced has a header, which its outcome carries back.
                trace = [header for header in record.headers if header[0] == "traceparent"]
                to = PREFIX + "crawl-outcomes"
                await producer.send_and_wait(to, value, key=key, headers=trace)
            if records:
                await consumer.commit()


if __name__ == "__main__":
    asyncio.run(main())
