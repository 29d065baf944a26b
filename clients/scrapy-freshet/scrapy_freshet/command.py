"""`scrapy-freshet`: a crawler that needs no code."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scrapy.crawler import CrawlerProcess

from scrapy_freshet.addon import Addon
from scrapy_freshet.spider import StoringSpider
from scrapy_freshet.storage import Files, Store, Warc

SETTINGS: dict[str, Any] = {
    "ADDONS": {Addon: 100},
    "ROBOTSTXT_OBEY": True,
    "USER_AGENT": "scrapy-freshet",
    # Freshet keeps to the hosts' limits; a second brake would only make requests late.
    "DOWNLOAD_DELAY": 0,
    "AUTOTHROTTLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 64,
    # Half of the time in which Freshet wants its answer.
    "DOWNLOAD_TIMEOUT": 60,
    "DOWNLOAD_MAXSIZE": 32 * 1024 * 1024,
    # A page is not to depend on what was crawled before it.
    "COOKIES_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "INFO",
}
"""Scrapy's, for the ready spider."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    given = _parser().parse_args(arguments)
    store: Store = Files(given.files) if given.files is not None else Warc(given.warc)
    settings = dict(SETTINGS)
    if given.user_agent:
        settings["USER_AGENT"] = given.user_agent
    if given.private_addresses:
        settings["FRESHET_PRIVATE_ADDRESSES"] = True
    for pair in given.set:
        name, _, value = pair.partition("=")
        settings[name] = value
    process = CrawlerProcess(settings)
    process.crawl(StoringSpider, store=store)
    process.start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scrapy-freshet", description=__doc__)
    commands = parser.add_subparsers(required=True)
    crawl = commands.add_parser(
        "crawl",
        help="crawl what Freshet asks for, and store it",
        description="Crawl what Freshet asks for, and store it, until Ctrl-C or SIGTERM. Where "
        "Kafka is, KAFKA_BOOTSTRAP_SERVERS says, in the environment or by --set.",
    )
    where = crawl.add_mutually_exclusive_group(required=True)
    where.add_argument("--files", type=Path, help="folder for the newest copy of each page")
    where.add_argument("--warc", type=Path, help="folder for WARC files with every copy")
    crawl.add_argument("--user-agent", help="who crawls: name a page that says so")
    crawl.add_argument(
        "--private-addresses",
        action="store_true",
        help="crawl hosts that are not on the public internet too",
    )
    crawl.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Scrapy's; repeatable",
    )
    return parser
