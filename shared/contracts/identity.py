"""Who a page is: canonical URL, host, ids and shard. The same functions everywhere."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import ada_url
import numpy as np
import xxhash
from aiokafka.partitioner import murmur2
from numpy.typing import NDArray

from shared.contracts.fields import MAX_URL_LENGTH

_ID_MASK = (1 << 63) - 1
_SCHEMES = ("http:", "https:")
MAX_HOST_NAME, MAX_LABEL = 253, 63
"""Characters of a name and of each of its parts, as DNS has them."""

_LABEL = re.compile(r"[a-z0-9_-]+")
_PLAIN = re.compile(
    r"https?://(?P<host>(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)"
    r"(?:/(?!\.)[A-Za-z0-9_~.-]*)+(?:\?[A-Za-z0-9_~./=&+-]*)?"
)
"""A URL that is canonical as it stands: a name that is no address, and nothing that is encoded or
left out."""

_AUTHORITY = re.compile(r"[^:/\\?#]*:[/\\]*(?:[^/\\?#]*@)?([^/\\?#]*)")
_MAX_PORT = len(":65535")

_NEVER = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Controls, ends of lines, halves of characters, and what turns the direction of a text around: no
name has them. All else is percent-encoded, also what is not to be seen: joiners are letters' own in
Persian and Urdu. Not by what is unprintable, which each version of Python knows in its own way."""

_HIDDEN_CONTROL = re.compile(r"%(?:[01][0-9a-f]|7f)", re.IGNORECASE)
_NO_PUBLIC_SUFFIX = (
    ".corp",
    ".home",
    ".home.arpa",
    ".internal",
    ".intranet",
    ".invalid",
    ".lan",
    ".local",
    ".localdomain",
    ".localhost",
    ".private",
)
_CARRIES_IPV4 = (
    (ipaddress.IPv6Network("::/96"), 0),
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
"""Forms of IPv6 that lead to an IPv4 address, and how far from the right it stands: compatible,
mapped, NAT64 (RFC 6052) and 6to4 (RFC 3056)."""

_NEVER_GLOBAL = tuple(
    ipaddress.IPv6Network(network)
    for network in ("64:ff9b:1::/48", "::ffff:0:0:0/96", "3fff::/20", "5f00::/16", "fec0::/10")
)
"""What Python takes for global, in some of its versions or all, and is not: NAT64 of one's own (RFC
8215), which leads to any IPv4 address, translated ones (RFC 2765), documentation (RFC 9637),
segments (RFC 9602), and local ones of before (RFC 3879)."""


class BadUrl(ValueError):
    """A URL that Freshet does not take; the text says why."""


class PageIdentity(NamedTuple):
    """A page's names."""

    url: str
    """Canonical: WHATWG-normalised, without fragment."""
    host: str
    """The URL's authority without credentials, with a port if it is not the scheme's own."""
    page_id: int
    """63 bits of xxh3 of the canonical URL."""


def page_id_of(canonical_url: str) -> int:
    """The id of a canonical URL: non-negative, so that it fits PostgreSQL's bigint."""
    return xxhash.xxh3_64_intdigest(canonical_url.encode()) & _ID_MASK


def page_ids_of(canonical_urls: Iterable[str]) -> NDArray[np.int64]:
    """`page_id_of` each."""
    return page_ids_of_utf8([url.encode() for url in canonical_urls])


def page_ids_of_utf8(canonical_urls: Sequence[bytes]) -> NDArray[np.int64]:
    """The same of URLs that are encoded already."""
    digests = map(xxhash.xxh3_64_intdigest, canonical_urls)
    hashes = np.fromiter(digests, np.uint64, len(canonical_urls))
    return (hashes & np.uint64(_ID_MASK)).astype(np.int64)


def digest_id_of(digest: str | None) -> int:
    """63 bits that stand for a content digest, never 0; 0 where there is none."""
    if digest is None:
        return 0
    return (xxhash.xxh3_64_intdigest(digest.encode()) & _ID_MASK) or 1


@lru_cache(maxsize=1 << 18)
def host_id_of(host: str) -> int:
    """The id of a host: non-negative, so that it fits PostgreSQL's bigint."""
    return xxhash.xxh3_64_intdigest(host.encode()) & _ID_MASK


@lru_cache(maxsize=1 << 18)
def shard_of(host: str, shards: int) -> int:
    """The shard, which is the partition, of a host.

    Kafka's own default for keyed records, so that any client in any language that keys by host
    lands right.
    """
    return int((murmur2(host.encode()) & 0x7FFFFFFF) % shards)


def identify(url: str) -> PageIdentity:
    """Canonicalise a URL and name its page.

    The URL standard's normalisation (scheme and host in lower case, IDNA to punycode, addresses
    in whatever notation to their usual one, default port, dot segments, percent-encoding) without
    the fragment, which is never sent to a server, and without the final dot of a host's name:
    with it, a host would have a second set of pages and a second crawl limit. The query stays as
    it is: its order may matter to a site.

    Raises:
        BadUrl: not http(s), no host or one that DNS cannot have, credentials, control
            characters (percent-encoded ones too), port 0, or too long.
    """
    plain = _PLAIN.fullmatch(url) if len(url) <= MAX_URL_LENGTH else None
    if plain is not None:
        host = plain["host"]
        # Punycode is looked into, below.
        if len(host) <= MAX_HOST_NAME and "--" not in host:
            return PageIdentity(url, host, page_id_of(url))
    return _identify_any(url)


def _identify_any(url: str) -> PageIdentity:
    """As `identify`, by the URL standard's parser, at ten times the price."""
    if len(url) > MAX_URL_LENGTH:
        raise BadUrl(f"the URL has {len(url)} characters; at most {MAX_URL_LENGTH} are taken")
    # What is printable has none of them, and is the faster question.
    if not url.isprintable() and _NEVER.search(url):
        raise BadUrl("the URL has control or unprintable characters")
    _require_short_host(url)
    try:
        parsed = ada_url.parse_url(
            url, attributes=("href", "host", "protocol", "username", "password")
        )
    except (ValueError, UnicodeError) as error:
        raise BadUrl("not an absolute URL that the URL standard accepts") from error
    if parsed["protocol"] not in _SCHEMES:
        raise BadUrl(f"scheme {parsed['protocol'][:20]!r}: only http and https are crawled")
    if parsed["username"] or parsed["password"]:
        raise BadUrl("the URL carries credentials: remove them")
    written = parsed["host"]
    if not written:
        raise BadUrl("the URL has no host")
    host = _proper_host(written)
    canonical = parsed["href"].partition("#")[0]
    if host != written:
        canonical = canonical.replace(written, host, 1)
    if "%" in canonical and _HIDDEN_CONTROL.search(canonical):
        raise BadUrl("the URL has percent-encoded control characters")
    if len(canonical) > MAX_URL_LENGTH:
        raise BadUrl(
            f"the canonical URL has {len(canonical)} characters; at most {MAX_URL_LENGTH} are taken"
        )
    return PageIdentity(canonical, host, page_id_of(canonical))


def _require_short_host(url: str) -> None:
    """Refuse a host that is too long before it is looked into: what IDNA costs is quadratic in its
    length, some 12 ms of a processor for one of 2,000 characters.

    Raises:
        BadUrl: it is too long for DNS whatever it is in ASCII.
    """
    if url.isascii() and "%" not in url:
        return
    found = _AUTHORITY.match(url)
    length = len(unquote(found[1])) if found is not None else 0
    if length > MAX_HOST_NAME + _MAX_PORT:
        raise BadUrl(f"the host has {length} characters; at most {MAX_HOST_NAME} are taken")


@lru_cache(maxsize=1 << 16)
def _proper_host(written: str) -> str:
    """The authority as pages are named by it: without a final dot.

    Raises:
        BadUrl: no name that DNS can have.
    """
    if written.startswith("["):
        name, colon, port = written.rpartition("]:")
    else:
        name, colon, port = written.partition(":")
    if colon and port == "0":
        raise BadUrl("port 0: nothing can listen there")
    if written.startswith("["):
        return written
    name = name.removesuffix(".")
    if len(name) > MAX_HOST_NAME:
        raise BadUrl(f"the host has {len(name)} characters; at most {MAX_HOST_NAME} are taken")
    for label in name.split("."):
        _check_label(label)
    return name + colon + port


def _check_label(label: str) -> None:
    if not label:
        raise BadUrl("the host has an empty part: two dots in a row, or one in front")
    if len(label) > MAX_LABEL:
        raise BadUrl(f"a part of the host has {len(label)} characters; at most {MAX_LABEL}")
    if not _LABEL.fullmatch(label):
        raise BadUrl("the host has characters that no host name has")
    # A punycode label that is none comes back as it was.
    if label.startswith("xn--") and ada_url.idna.decode(label).startswith("xn--"):
        raise BadUrl(f"the host's part {label!r} is not valid punycode")


class BadHost(ValueError):
    """What was given is no host; the text says why."""


def host_name(written: str) -> str:
    """A host's name as Freshet has it, of what people write. A port that is written stays, as each
    is another scheme's: `x:80` is the host of `https://x:80/`. With its scheme in front it is
    without the port that is the scheme's own: of `https://x:443`, `x`.

    Raises:
        BadHost: it is no authority of a URL.
    """
    scheme, is_said, authority = written.partition("://")
    schemes = (scheme,) if is_said else ("https", "http")
    authority = authority if is_said else written
    if any(mark in authority for mark in "/\\?#@"):
        raise BadHost(f"{written!r} is not a host: give the authority only, like example.com:8080")
    try:
        return max((identify(f"{one}://{authority}/").host for one in schemes), key=len)
    except BadUrl as error:
        raise BadHost(f"{written!r} is not a host: {error}") from error


@lru_cache(maxsize=1 << 16)
def is_private_host(host: str) -> bool:
    """Whether a host is an address or a name that is not on the public internet.

    Names are judged by themselves, without asking DNS: a public name that leads to a private
    address is for the crawler to refuse, which knows where it connects.
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(_NO_PUBLIC_SUFFIX)
    if isinstance(address, ipaddress.IPv4Address):
        return _is_private_address(address)
    for network, shift in _CARRIES_IPV4:
        if address in network:
            inner = ipaddress.IPv4Address(int(address) >> shift & 0xFFFF_FFFF)
            return _is_private_address(inner)
    return _is_private_address(address)


def not_public(host: str, to: str = "crawl such pages") -> str:
    """What is said of a host that is not on the public internet; `to`: what an operator may let."""
    name = f"host {host[:300]!r} is not on the public internet"
    return f"{name}: set FRESHET_ALLOW_PRIVATE_HOSTS to {to}"


def _is_private_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if any(address in network for network in _NEVER_GLOBAL):
        return True
    return address.is_multicast or not address.is_global
