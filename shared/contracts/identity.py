"""Who a page is: canonical URL, host, ids and shard. The same functions everywhere."""

import ipaddress
from functools import lru_cache
from typing import NamedTuple

import ada_url
import xxhash
from aiokafka.partitioner import murmur2

from shared.contracts.messages import MAX_URL_LENGTH

_ID_MASK = (1 << 63) - 1
_SCHEMES = ("http:", "https:")
_NO_PUBLIC_SUFFIX = (".local", ".internal", ".localhost", ".home.arpa")


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

    The URL standard's normalisation (scheme and host in lower case, IDNA, default port, dot
    segments, percent-encoding) without the fragment, which is never sent to a server. The query
    stays as it is: its order may matter to a site.

    Raises:
        BadUrl: not http(s), no host, credentials, control characters, or too long.
    """
    if len(url) > MAX_URL_LENGTH:
        raise BadUrl(f"the URL has {len(url)} characters; at most {MAX_URL_LENGTH} are taken")
    if not url.isprintable():
        raise BadUrl("the URL has control or unprintable characters")
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
    host = parsed["host"]
    if not host:
        raise BadUrl("the URL has no host")
    if len(host) > 260:
        raise BadUrl(f"the host has {len(host)} characters; at most 260 are taken")
    canonical = parsed["href"].partition("#")[0]
    if len(canonical) > MAX_URL_LENGTH:
        raise BadUrl(
            f"the canonical URL has {len(canonical)} characters; at most {MAX_URL_LENGTH} are taken"
        )
    return PageIdentity(canonical, host, page_id_of(canonical))


@lru_cache(maxsize=1 << 16)
def is_private_host(host: str) -> bool:
    """Whether a host is an address or a name that is not on the public internet."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(_NO_PUBLIC_SUFFIX):
        return True
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        return False
