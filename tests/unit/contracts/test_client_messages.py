"""What a crawler's package says is the contract, though it installs none of the workers."""

import ast

from scrapy_freshet import messages as client

from deploy.docs.places import TOP
from shared.contracts import fields, messages, topics
from shared.contracts.codec import MAX_LARGE_BYTES, decode, encode

PACKAGE = TOP / "clients" / "scrapy-freshet" / "scrapy_freshet"


def test_topics_have_their_names():
    assert topics.CRAWL_REQUESTS.name == client.CRAWL_REQUESTS
    assert topics.CRAWL_OUTCOMES.name == client.CRAWL_OUTCOMES
    assert topics.HOST_LIMITS.name == client.HOST_LIMITS
    assert topics.DISCOVERIES.name == client.DISCOVERIES


def test_its_messages_are_read_as_they_were_meant():
    outcome = client.CrawlOutcome(
        "http://a.example/", "a.example", "1", 5.0, "failed", "d", 503, 9.0
    )
    read = decode(messages.CrawlOutcome, encode(outcome))
    assert all(getattr(read, name) == getattr(outcome, name) for name in outcome.__struct_fields__)
    for result, target in (("redirected", "redirected_to"), ("canonical", "canonical_url")):
        told = client.CrawlOutcome(
            "http://a.example/", "a.example", "1", 5.0, result, **{target: "http://b.example/"}
        )
        read = decode(messages.CrawlOutcome, encode(told))
        assert (read.result, getattr(read, target)) == (result, "http://b.example/")
    assert client.Result == fields.Result
    assert client.MOST_URL_CHARACTERS == fields.MAX_URL_LENGTH
    limit = decode(messages.HostLimit, encode(client.HostLimit("a.example", 0.25, 4.0)))
    assert (limit.host, limit.max_crawls_per_second) == ("a.example", 0.25)
    links = ["http://b.example/"]
    found = decode(messages.Discovery, encode(client.Discovery("http://a.example/", links, 5.0)))
    assert (found.url, found.links, found.found_at) == ("http://a.example/", links, 5.0)


def test_the_longest_discovery_is_one_that_is_read():
    links = ["h" * client.MOST_URL_CHARACTERS] * client.MOST_LINKS_A_MESSAGE
    largest = encode(client.Discovery(links[0], links, 1_700_000_000.123456))
    assert len(largest) <= MAX_LARGE_BYTES
    assert len(links) <= fields.MAX_LINKS


def test_it_reads_requests_as_they_are_written():
    request = messages.CrawlRequest("1", 7, "http://a.example/", "a.example", 1, 2, 3, 4, "value")
    read = decode(client.CrawlRequest, encode(request))
    assert read == client.CrawlRequest("1", "http://a.example/", "a.example", 2.0)


def test_it_imports_nothing_of_ours():
    imported = {
        name.partition(".")[0]
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported & {"services", "shared", "deploy", "migrations"} == set()
    assert {"scrapy", "aiokafka"} <= imported
