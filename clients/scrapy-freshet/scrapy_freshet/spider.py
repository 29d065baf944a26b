"""The ready spider: fetches what Freshet asks for, and stores it."""

from typing import Any

from scrapy import Spider
from scrapy.http import Response

from scrapy_freshet.spider_middleware import URL_KEY
from scrapy_freshet.storage import Store


class StoringSpider(Spider):
    """Stores every page; one that cannot be stored is answered as failed, and asked for again."""

    name = "freshet"

    def __init__(self, *arguments: Any, store: Store, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._store = store

    def parse(self, response: Response, **_more: Any) -> None:
        """Scrapy's callback for each page.

        Raises:
            OSError: it could not be stored.
        """
        self._store.put(response.meta.get(URL_KEY, response.url), response)

    def closed(self, _reason: str) -> None:
        """Scrapy's callback for the end."""
        self._store.close()
