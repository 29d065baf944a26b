"""News of a page that is read before the page is put back, and comes again, on both brokers."""

from aiokafka import TopicPartition

from shared.runtime.precedence import Precedence


async def read_some(consumer, precedence):
    """What is handled of the next records, if any came: (topic, value), in order of topic."""
    fetched = {tp: r for tp, r in (await consumer.getmany(timeout_ms=200)).items() if r}
    await precedence.hold_back(consumer, fetched)
    return [(tp.topic, record.value) for tp in sorted(fetched) for record in fetched[tp]]


async def test_what_is_read_too_early_is_read_again(clients, unique):
    pages, crawls = f"{unique}-a-pages", f"{unique}-b-crawls"
    for topic in (pages, crawls):
        await clients.create_topic(topic, 1)
    producer = await clients.producer()
    consumer = await clients.consumer(auto_offset_reset="earliest")
    first = TopicPartition(pages, 0)
    consumer.assign([first, TopicPartition(crawls, 0)])
    precedence = Precedence(pages, frozenset({crawls}))

    await producer.send_and_wait(crawls, b"of a page of before", partition=0)
    handled = []
    while not handled:
        handled = await read_some(consumer, precedence)
    assert handled == [(crawls, b"of a page of before")]

    consumer.pause(first)
    await producer.send_and_wait(pages, b"a page", partition=0)
    await producer.send_and_wait(crawls, b"of this page", partition=0)
    for _ in range(10):
        assert await read_some(consumer, precedence) == []
    consumer.resume(first)
    handled = []
    while len(handled) < 2:
        handled += await read_some(consumer, precedence)
    assert handled == [(pages, b"a page"), (crawls, b"of this page")]
