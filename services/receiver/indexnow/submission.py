"""What is submitted: a host, its key, where the key's file is, and URLs. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

from services.receiver.refusing import Refused
from services.receiver.texts import trimmed
from shared.contracts.identity import BadHost, BadUrl, host_name, identify, is_private_host
from shared.rules.host_rules import usual_name
from shared.runtime.pings import Ping

MOST_URLS: Final = 10_000
_MOST_QUOTES: Final = 4 * MOST_URLS
"""Two around each URL. They are counted before the URLs are, as each takes many times what it has
bytes."""

_KEY: Final = re.compile(r"[A-Za-z0-9-]{8,128}")


class _Posted(Struct, rename="camel"):
    """The JSON of a POST."""

    host: str
    key: str
    url_list: list[str]
    key_location: str | None = None


_POSTED: Final = msgspec.json.Decoder(_Posted)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """Where a host says which key is its own."""

    host: str
    key: str
    urls: tuple[str, ...]
    """In the order in which they are tried: the second where the first cannot be reached."""
    folder: str
    """The part of the host that the key is good for: `/` is all of it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """URLs of one host."""

    host: str
    key: str
    key_location: str | None
    urls: tuple[str, ...]


def of_query(query: Mapping[str, str]) -> Submission:
    """The submission of a GET.

    Raises:
        Refused: 400, something is missing or malformed.
    """
    url, key = query.get("url"), query.get("key")
    if not url or not key:
        raise Refused(400, "a GET has `url` and `key`")
    try:
        host = identify(url).host
    except BadUrl as error:
        raise Refused(400, f"url: {error}") from error
    return Submission(host, key, query.get("keyLocation"), (url,))


def of_body(body: bytes) -> Submission:
    """The submission of a POST.

    Raises:
        Refused: 400, it is not the protocol's JSON, or has too many URLs or none.
    """
    if body.count(b'"') > _MOST_QUOTES:
        raise Refused(400, f"far more texts than the {MOST_URLS} URLs that are taken")
    try:
        posted = _POSTED.decode(trimmed(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"not IndexNow's JSON: {error}") from error
    if not 1 <= len(posted.url_list) <= MOST_URLS:
        raise Refused(400, f"urlList has {len(posted.url_list)} URLs; 1 to {MOST_URLS} are taken")
    return Submission(
        canonical_host(posted.host), posted.key, posted.key_location, tuple(posted.url_list)
    )


def canonical_host(host: str) -> str:
    """The host as pages are named by it, without a port that goes without saying.

    Raises:
        Refused: 400, no host.
    """
    try:
        return usual_name(host_name(host))
    except BadHost as error:
        raise Refused(400, str(error)) from error


def key_file(submission: Submission) -> KeyFile:
    """Which file must hold the key.

    Raises:
        Refused: 422, the key is not as the protocol has it, or its file is on another host.
    """
    host, key = submission.host, submission.key
    if not _KEY.fullmatch(key):
        raise Refused(422, "a key has 8 to 128 letters, digits and dashes")
    if submission.key_location is None:
        schemes = ["https"]
        if any(not url[:5].lower().startswith("https") for url in submission.urls):
            schemes.append("http")
        return KeyFile(host, key, tuple(f"{s}://{host}/{key}.txt" for s in schemes), "/")
    try:
        page = identify(submission.key_location)
    except BadUrl as error:
        raise Refused(422, f"keyLocation: {error}") from error
    if page.host != host:
        raise Refused(422, f"keyLocation is on {page.host}, not on {host}")
    path = path_of(page.url)
    if "?" in path:
        # A page that shows what it is asked for would prove anything to be anybody's.
        raise Refused(422, "keyLocation has a query: it must be a file")
    return KeyFile(host, key, (page.url,), path[: path.rindex("/") + 1])


def pings_within(
    urls: tuple[str, ...], host: str | None, folder: str, *, allow_private: bool
) -> list[Ping]:
    """The URLs as pings, if all of them are the host's, within the folder.

    Args:
        urls: as submitted.
        host: whose they must be; None: anybody's.
        folder: of the key's file.
        allow_private: take hosts that are not on the public internet.

    Raises:
        Refused: 400, one is no URL; 422, one is not the host's, or not of the folder.
    """
    pings = []
    for url in urls:
        try:
            page = identify(url)
        except BadUrl as error:
            raise Refused(400, f"{url[:200]!r}: {error}") from error
        if host is not None and page.host != host:
            raise Refused(422, f"{url[:200]!r} is not on {host}")
        if not allow_private and is_private_host(page.host):
            raise Refused(422, f"host {page.host!r} is not on the public internet")
        if folder != "/" and not path_of(page.url).startswith(folder):
            raise Refused(422, f"{url[:200]!r} is not in {folder}, where the key's file is")
        pings.append(Ping(page.url, page.host))
    return pings


def path_of(canonical_url: str) -> str:
    """Path and query of a canonical URL, from its first slash."""
    return canonical_url[canonical_url.index("/", canonical_url.index("//") + 2) :]
