"""Who a page is: the same name from every spelling, and Kafka's own partition for its host."""

import random
import unicodedata
from collections import Counter
from urllib.parse import quote

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given, settings
from url_samples import plain_url, urls

from shared.contracts import identity
from shared.contracts.identity import (
    BadHost,
    BadUrl,
    host_id_of,
    host_name,
    identify,
    is_private_host,
    page_id_of,
    page_ids_of,
    shard_of,
)

KNOWN_SHARDS = [57, 39, 43]
KNOWN_PAGE_ID = 5522761390303137003
KNOWN_HOST_ID = 821362117545671539


@pytest.mark.slow(3)
@settings(max_examples=2000, deadline=None)
@given(urls)
def test_any_text_has_a_name_or_is_bad_and_names_are_their_own_names(text):
    try:
        page = identify(text)
    except BadUrl:
        return
    assert identify(page.url) == page
    assert page.url.isascii()
    assert page.url.startswith(("http://", "https://"))
    assert "#" not in page.url
    assert page.host
    assert 0 <= page.page_id < 1 << 63
    is_private_host(page.host)


@pytest.mark.slow(0.5)
def test_urls_that_look_canonical_are_named_as_the_standard_says():
    rng = random.Random(7)
    found = set()
    for url in (plain_url(rng) for _ in range(20_000)):
        # In capitals, a scheme is no canonical one: that URL is always parsed.
        standard = named("HTTP" + url[4:] if url.startswith("http:") else "HTTPS" + url[5:])
        assert named(url) == standard, url
        found.add(None if standard is None else standard.url == url)
    assert found == {None, False, True}


def named(url):
    """The page of a URL; None: there is none."""
    try:
        return identify(url)
    except BadUrl:
        return None


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("HTTP://EXAMPLE.com", "http://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:8443/a", "https://example.com:8443/a"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/?b=2&a=1", "https://example.com/?b=2&a=1"),
        ("https://example.com/#top", "https://example.com/"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("http://0x7f000001/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0177.0.0.1/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://127.1./", "http://127.0.0.1/"),
        ("http://１２７.０.０.１/", "http://127.0.0.1/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("http://example.com./a.b", "http://example.com/a.b"),
        ("http://a.example.:8080/a.example.:8080", "http://a.example:8080/a.example.:8080"),
        ("http://h./h./", "http://h/h./"),
        ("http://example。com/", "http://example.com/"),
        ("http://аррӏе.com/", "http://xn--80ak6aa92e.com/"),
        ("http://example.com/%2e%2E/a/.%2e/b", "http://example.com/b"),
        ("http://example.com\\@b.example/", "http://example.com/@b.example/"),
        ("http://@example.com/", "http://example.com/"),
        ("http://example.com/100%/%zz?%", "http://example.com/100%/%zz?%"),
        ("https://example.com\u200b.evil.example/", "https://example.com.evil.example/"),
        ("https://exam\u00adple.com/", "https://example.com/"),
    ],
)
def test_spellings_of_a_page_have_one_name(spelling, canonical):
    assert identify(spelling).url == canonical


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.com/", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("https://user:secret@example.com/", "credentials"),
        ("https://example.com/\x00", "control"),
        ("https://example.com/" + "a" * 2048, "at most 2048"),
        ("https://example.com/" + "ä" * 1000, "canonical URL has"),
        ("https://" + "a." * 140 + "example/", "host has"),
        ("https://" + "a" * 64 + ".example/", "part of the host has 64"),
        ("https://example.com@b.example/", "credentials"),
        ("https://:secret@b.example/", "credentials"),
        ("https://\u0627\u200c\u0628.example/", "absolute URL"),
        ("https://exam\u202eple.com/", "unprintable"),
        ("https://example.com/%00", "percent-encoded control"),
        ("https://example.com/a%0D%0aHost:%20b", "percent-encoded control"),
        ("https://example.com/?q=%7F", "percent-encoded control"),
        ("https://example.com:0/", "port 0"),
        ("https://[::1]:0/", "port 0"),
        ("https://example.com:65536/", "absolute URL"),
        ("https://example.com../", "empty part"),
        ("https://.example.com/", "empty part"),
        ("https://./", "empty part"),
        ("https://a'b.example/", "characters that no host"),
        ("https://a*b.example/", "characters that no host"),
        ("https://a,b.example/", "characters that no host"),
        ("https://xn--a.example/", "not valid punycode"),
        ("https://xn--/", "not valid punycode"),
        ("https://[fe80::1%25eth0]/", "absolute URL"),
        ("https://256.1.1.1/", "absolute URL"),
        ("https://1.2.3.4.5/", "absolute URL"),
        ("https://example.com%2fa/", "absolute URL"),
        ("https://example.com%00/", "absolute URL"),
        ("https://\ud800.example/", "unprintable"),
        ("https://example.com/a\u0085b", "unprintable"),
        ("https://example.com/a\u2028b", "unprintable"),
        ("https://example.com/a\u200fb", "unprintable"),
        ("https://example.com/a\u2067b\u2069", "unprintable"),
        ("file:///etc/passwd", "only http and https"),
        ("data:text/html,a", "only http and https"),
        ("https://", "absolute URL"),
        ("example.com/page", "absolute URL"),
        ("", "absolute URL"),
    ],
)
def test_what_is_no_page_is_refused_without_repeating_secrets(url, reason):
    with pytest.raises(BadUrl, match=reason) as caught:
        identify(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "slug",
    [
        "می\u200cخواهم",  # Persian, with a joiner that is none
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Sinhala, with one that is
        "\U0001f468\u200d\U0001f469",
        "a\u00a0b",
        "a\u00adb",
        "a\u200bb\ufeff",
        "\ue000",
        "\U000105c0",  # newer than the Unicode of Python 3.11
        "\U000e0fff",  # and what none has yet
    ],
)
def test_what_is_not_to_be_seen_is_encoded_as_browsers_do_it(slug):
    encoded = f"https://example.com/{quote(slug)}?q={quote(slug)}"
    page = identify(f"https://example.com/{slug}?q={slug}")
    assert page.url == encoded
    assert identify(encoded) == page


def test_no_url_has_controls_nor_what_turns_a_text_around_and_all_else_is_its_own():
    refused = identity._NEVER.findall("".join(map(chr, range(0x110000))))
    # `identify` asks first whether anything is unprintable, which costs less.
    assert not any(map(str.isprintable, refused))
    kinds = Counter(map(unicodedata.category, refused))
    assert kinds == {"Cc": 65, "Cs": 2048, "Zl": 1, "Zp": 1, "Cf": 12}
    formats = [c for c in refused if unicodedata.category(c) == "Cf"]
    assert "BN" not in map(unicodedata.bidirectional, formats)


@pytest.mark.parametrize("partitions", [1, 2, 7, 64, 1000])
def test_a_host_is_on_the_partition_where_any_client_that_keys_by_host_puts_it(partitions):
    kafka = DefaultPartitioner()
    everything = list(range(partitions))
    names = random.Random(7)
    for _ in range(300):
        host = "".join(names.choices("abcdefghijklmnop-.0123456789", k=names.randint(1, 40)))
        assert shard_of(host, partitions) == kafka(host.encode(), everything, everything)


def test_known_shards_and_ids_never_change():
    assert [shard_of(h, 64) for h in ("example.com", "a.example:8080", "[::1]")] == KNOWN_SHARDS
    assert page_id_of("https://example.com/") == KNOWN_PAGE_ID
    assert host_id_of("example.com") == KNOWN_HOST_ID


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("localhost", True),
        ("localhost.:8080", True),
        ("printer.local", True),
        ("127.0.0.1:80", True),
        ("10.1.2.3", True),
        ("169.254.169.254", True),
        ("[::1]:8080", True),
        ("[fe80::1]", True),
        ("[::ffff:a00:1]", True),
        ("[::7f00:1]", True),
        ("[64:ff9b::a9fe:a9fe]", True),
        ("[64:ff9b:1::a9fe:a9fe]", True),
        ("[::ffff:0:a9fe:a9fe]", True),
        ("[3fff::1]", True),
        ("[5f00::1]", True),
        ("[2002:7f00:1::]", True),
        ("[fd00:ec2::254]", True),
        ("[fec0::1]", True),
        ("[ff02::1]", True),
        ("224.0.0.1", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("255.255.255.255", True),
        ("metadata.google.internal", True),
        ("intranet", True),
        ("intranet:8080", True),
        ("nas.lan", True),
        ("[64:ff9b::808:808]", False),
        ("[2002:808:808::]", False),
        ("8.8.8.8", False),
        ("[2001:4860:4860::8888]:443", False),
        ("example.com", False),
        ("local.example", False),
    ],
)
def test_hosts_off_the_public_internet_are_known(host, private):
    assert is_private_host(host) is private


def test_many_pages_have_the_ids_that_they_have_one_by_one():
    urls = [f"https://example.com/{number}" for number in range(300)] + ["https://пример.example/"]
    assert page_ids_of(urls).tolist() == [page_id_of(url) for url in urls]
    assert page_ids_of([]).tolist() == []


@pytest.mark.parametrize(
    "before", ["http://", "https:\\\\", "http:", "http://name:word@", "http://@"]
)
@pytest.mark.parametrize("after", ["", "/path", "?query", ":80/"])
def test_a_host_that_is_too_long_is_refused_before_it_is_looked_into(monkeypatch, before, after):
    """What IDNA costs is quadratic: a few thousand such URLs would keep an ingester for minutes."""
    monkeypatch.setattr(identity.ada_url, "parse_url", lambda *_, **__: pytest.fail("looked into"))
    host = "".join(chr(0x4E00 + n) for n in range(1500))
    with pytest.raises(BadUrl, match="at most 253"):
        identify(f"{before}{host}{after}")


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("EXAMPLE.com.", "example.com"),
        ("bücher.example:8080", "xn--bcher-kva.example:8080"),
        ("example.com:80", "example.com:80"),
        ("example.com:443", "example.com:443"),
        ("example.com:080", "example.com:80"),
        ("[::1]:443", "[::1]:443"),
        ("https://Example.com:443", "example.com"),
        ("http://example.com:443", "example.com:443"),
        ("http://example.com:80", "example.com"),
        ("https://example.com:80", "example.com:80"),
    ],
)
def test_a_host_that_is_named_is_the_one_that_is_called_so_and_no_other(written, host):
    assert host_name(written) == host
    assert host in {identify(f"{scheme}://{host}/").host for scheme in ("http", "https")}


@pytest.mark.parametrize(
    "around", ["{}?x", "{}#x", "{}\\x", "{}/", "https://{}/", "ftp://{}", "a@{}", "https://a://{}"]
)
def test_more_than_a_host_is_not_taken_for_one(around):
    with pytest.raises(BadHost, match="is not a host"):
        host_name(around.format("example.com"))
