"""Which pages a batch names, and what of them its messages say already.

Looked at before a batch is applied, so that the pages that are not in memory are read at once.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from shared.contracts.codec import decode_many
from shared.contracts.identity import page_ids_of
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES
from shared.store.directories import directories_of

_TOPICS: Final = (PAGE_UPDATES.name, PAGE_SIGNALS.name, CRAWL_OUTCOMES.name)


class _About(msgspec.Struct):
    """What messages about pages have in common."""

    url: str


class Named(NamedTuple):
    """Pages, each once, in rising order of their ids."""

    page_ids: NDArray[np.int64]
    directories: NDArray[np.uint16]
    """In which they lie (`shared.store.directories`)."""

    def chosen(self, which: NDArray[np.bool_]) -> Self:
        """Some of them."""
        return self._replace(page_ids=self.page_ids[which], directories=self.directories[which])


def named_pages(topics: Mapping[str, Sequence[ConsumerRecord]]) -> Named:
    """The pages that records of a shard name by their canonical URLs.

    A URL that is not canonical is that of no page: who reads the message asks for its page then.
    A message that cannot be read names nothing.

    Args:
        topics: topic (without prefix) → records.
    """
    values = [record.value for topic in _TOPICS for record in topics.get(topic, ())]
    messages, _ = decode_many(_About, values)
    urls = [message.url for message in messages]
    page_ids, first = np.unique(page_ids_of(urls), return_index=True)
    texts = [urls[place].encode() for place in first.tolist()]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Named(page_ids, directories_of(np.frombuffer(b"".join(texts), np.uint8), ends))
