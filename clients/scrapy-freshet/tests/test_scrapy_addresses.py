"""No crawler is led into its own network; and a robots.txt is told of, and read again."""

import pytest
from scrapy import Spider
from scrapy.utils.test import get_crawler
from scrapy_freshet.addresses import is_private_literal, is_public
from scrapy_freshet.robots import DailyRobotsTxtMiddleware, crawl_delay


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "0.0.0.0", "100.64.0.1"),
        *("224.0.0.1", "[::1]", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "::127.0.0.1"),
        *("64:ff9b::10.0.0.1", "2002:7f00:1::"),
    ],
)
def test_addresses_of_ones_own_network_are_not_public(address):
    assert not is_public(address)
    assert is_private_literal(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "[2606:4700::1111]", "64:ff9b::8.8.8.8"])
def test_addresses_of_the_internet_are(address):
    assert is_public(address)
    assert not is_private_literal(address)


def test_names_are_left_to_the_resolver():
    assert not is_private_literal("localhost")
    assert not is_public("localhost")


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        (b"User-agent: *\nCrawl-delay: 4", 4.0),
        (b"User-agent: *\nRequest-rate: 1/10", 10.0),
        (b"User-agent: *\nCrawl-delay: 99999999999", 1e7),
        (b"User-agent: other\nCrawl-delay: 4", None),
        (b"User-agent: *\nCrawl-delay: 0.1", None),
        (b"\xff\xfe\x00", None),
        (b"", None),
    ],
)
def test_a_delay_is_told_where_it_is_longer_than_the_default(text, delay):
    assert crawl_delay(text, "freshet") == delay


def test_a_robots_txt_is_forgotten_after_a_day():
    crawler = get_crawler(Spider, {"ROBOTSTXT_OBEY": True})
    middleware = DailyRobotsTxtMiddleware(crawler)
    middleware._parsers["a.example"] = rules = object()
    middleware._forget_old("a.example", now=10.0)
    assert middleware._parsers["a.example"] is rules
    middleware._asked_at["a.example"] = 10.0
    middleware._forget_old("a.example", now=86_000.0)
    assert middleware._parsers["a.example"] is rules
    middleware._forget_old("a.example", now=86_500.0)
    assert "a.example" not in middleware._parsers
