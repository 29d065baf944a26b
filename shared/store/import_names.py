"""The names of pages that are imported: many URLs at once, as columns.

Nearly all URLs of a file are canonical as they stand (`_PLAIN` of `shared.contracts.identity`).
Those are found by a kernel, in the bytes of the file, and stay there; only the others are handed
to `identify`, one by one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shared.contracts.fields import MAX_URL_LENGTH
from shared.contracts.identity import (
    MAX_HOST_NAME,
    MAX_LABEL,
    BadUrl,
    PageIdentity,
    identify,
    page_ids_of_utf8,
)
from shared.policy.compiled import compiled

_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_DIGITS: Final = "0123456789"

_NAME: Final = 1
"""May begin and end a part of a host's name."""
_LETTER: Final = 2
"""May begin the last part of a host's name."""
_PATH: Final = 4
_QUERY: Final = 8


def _kinds() -> NDArray[np.uint8]:
    kinds = np.zeros(256, np.uint8)
    anywhere = _LOWER + _LOWER.upper() + _DIGITS + "_~.-"
    for kind, characters in (
        (_NAME, _LOWER + _DIGITS),
        (_LETTER, _LOWER),
        (_PATH, anywhere),
        (_QUERY, anywhere + "/=&+"),
    ):
        kinds[np.frombuffer(characters.encode(), np.uint8)] |= kind
    return kinds


_KINDS: Final = _kinds()
"""What a byte may be in a URL that is canonical as it stands."""

_HTTP: Final = np.frombuffer(b"http", np.uint8)
_SLASH, _COLON, _DOT, _DASH, _MARK, _S = b"/:.-?s"


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in UTF-8, anywhere among some bytes."""

    arena: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, strings: "pa.StringArray") -> "Texts":
        """Those of an array without nulls; its memory is shared."""
        _, offsets, data = strings.buffers()
        bounds = np.frombuffer(offsets, np.int32)[strings.offset :][: len(strings) + 1]
        begins = bounds.astype(np.int64) if len(strings) else np.zeros(1, np.int64)
        arena = np.frombuffer(b"" if data is None else data, np.uint8)
        return cls(arena, begins[:-1], np.diff(begins))

    def take(self, rows: NDArray[np.int64]) -> "Texts":
        """Some of them; their bytes stay where they are."""
        return Texts(self.arena, self.begins[rows], self.lengths[rows])

    def text(self, row: int) -> str:
        """One of them."""
        begin = self.begins[row]
        return self.arena[begin : begin + self.lengths[row]].tobytes().decode()


@dataclass(frozen=True, slots=True)
class Names:
    """What the pages of some rows are called."""

    urls: Texts
    """Canonical, where the row has a host."""
    page_ids: NDArray[np.int64]
    hosts: list[str]
    """Each once."""
    host: NDArray[np.int64]
    """Number among `hosts` of each row's; −1: no page has such a URL."""
    refused: dict[int, str]
    """Row → why it is none."""


def name_pages(urls: "pa.StringArray", wanted: NDArray[np.bool_]) -> Names:
    """Name many pages, as `identify` names each.

    Args:
        urls: in any form that `identify` takes, without nulls.
        wanted: rows that have no other fault; of the others nothing is said.
    """
    given = Texts.of(urls)
    ends = np.zeros(len(urls), np.int64)
    begins = np.zeros(len(urls), np.int64)
    _find_hosts(given.arena, given.begins, given.lengths, wanted, begins, ends)
    plain = np.flatnonzero(ends)
    hosts, numbers = _encoded(Texts(given.arena, begins[plain], (ends - begins)[plain]))
    host = np.full(len(urls), -1, np.int64)
    host[plain] = numbers
    page_ids = np.zeros(len(urls), np.int64)
    canonical = urls if plain.size == len(urls) else urls.take(pa.array(plain))
    page_ids[plain] = page_ids_of_utf8(canonical.cast(pa.binary()).to_pylist())
    others = np.flatnonzero(wanted & (ends == 0))
    if not others.size:
        return Names(given, page_ids, hosts, host, {})
    named, refused = _identified(urls, others)
    rows = np.array(list(named), np.int64)
    page_ids[rows] = [page.page_id for page in named.values()]
    known = {name: number for number, name in enumerate(hosts)}
    host[rows] = [known.setdefault(page.host, len(known)) for page in named.values()]
    return Names(_with(given, named), page_ids, list(known), host, refused)


def _encoded(texts: Texts) -> tuple[list[str], NDArray[np.int64]]:
    """Texts that are there more than once: each of them once, and the number of each one's."""
    offsets = np.zeros(texts.lengths.size + 1, np.int32)
    np.cumsum(texts.lengths, out=offsets[1:])
    joined = np.empty(int(offsets[-1]), np.uint8)
    place(texts.arena, texts.begins, texts.lengths, joined, offsets[:-1].astype(np.int64))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    found = pa.Array.from_buffers(pa.string(), texts.lengths.size, buffers).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy().astype(np.int64)


def _identified(
    urls: "pa.StringArray", rows: NDArray[np.int64]
) -> tuple[dict[int, PageIdentity], dict[int, str]]:
    """Row → page, and row → why there is none."""
    named: dict[int, PageIdentity] = {}
    refused: dict[int, str] = {}
    for row, url in zip(rows.tolist(), urls.take(pa.array(rows)).to_pylist(), strict=True):
        try:
            named[row] = identify(url)
        except BadUrl as error:
            refused[row] = str(error)
    return named, refused


def _with(given: Texts, named: dict[int, PageIdentity]) -> Texts:
    """Texts of which some are others."""
    canonical = [page.url.encode() for page in named.values()]
    lengths = np.array([len(text) for text in canonical], np.int64)
    rows = np.array(list(named), np.int64)
    begins, all_lengths = given.begins.copy(), given.lengths.copy()
    begins[rows] = given.arena.size + np.cumsum(lengths) - lengths
    all_lengths[rows] = lengths
    more = np.frombuffer(b"".join(canonical), np.uint8)
    return Texts(np.concatenate([given.arena, more]), begins, all_lengths)


@compiled
def place(
    source: NDArray[np.uint8],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    target: NDArray[np.uint8],
    places: NDArray[np.int64],
) -> None:
    """Copy stretches of bytes to places of theirs."""
    for number in range(begins.size):
        begin, at = begins[number], places[number]
        for offset in range(lengths[number]):
            target[at + offset] = source[begin + offset]


@compiled
def _find_hosts(
    arena: NDArray[np.uint8],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    host_begins: NDArray[np.int64],
    host_ends: NDArray[np.int64],
) -> None:
    """Where the hosts of URLs stand that are canonical as they are; an end of 0: it is not."""
    for row in range(begins.size):
        begin, length = begins[row], lengths[row]
        if not wanted[row] or length > MAX_URL_LENGTH:
            continue
        end = begin + length
        host = _after_scheme(arena, begin, end)
        if host == 0:
            continue
        path = _after_host(arena, host, end)
        if path != 0 and _is_plain_path(arena, path, end):
            host_begins[row] = host
            host_ends[row] = path


@compiled
def _after_scheme(arena: NDArray[np.uint8], begin: int, end: int) -> int:
    """Where the host begins; 0: it is no web address."""
    if end - begin < len(_HTTP) + 4:
        return 0
    for offset in range(len(_HTTP)):
        if arena[begin + offset] != _HTTP[offset]:
            return 0
    at = begin + len(_HTTP)
    if arena[at] == _S:
        at += 1
    if arena[at] != _COLON or arena[at + 1] != _SLASH or arena[at + 2] != _SLASH:
        return 0
    return at + 3


@compiled
def _after_host(arena: NDArray[np.uint8], begin: int, end: int) -> int:
    """Where the path begins after a name that needs no second look; 0: there is none such."""
    label = begin
    is_first = True
    for at in range(begin, end):
        byte = arena[at]
        if _KINDS[byte] & _NAME:
            continue
        if byte == _DASH:
            if at == label or arena[at - 1] == _DASH:
                return 0
            continue
        if byte not in (_DOT, _SLASH):
            return 0
        if at == label or at - label > MAX_LABEL or arena[at - 1] == _DASH:
            return 0
        if byte == _SLASH:
            is_name = not is_first and _KINDS[arena[label]] & _LETTER
            return at if is_name and at - begin <= MAX_HOST_NAME else 0
        label = at + 1
        is_first = False
    return 0


@compiled
def _is_plain_path(arena: NDArray[np.uint8], begin: int, end: int) -> bool:
    """Whether what begins with a slash has nothing that is encoded, left out, or relative."""
    kind = _PATH
    for at in range(begin, end):
        byte = arena[at]
        if kind == _PATH:
            if byte == _SLASH:
                if at + 1 < end and arena[at + 1] == _DOT:
                    return False
                continue
            if byte == _MARK:
                kind = _QUERY
                continue
        if not _KINDS[byte] & kind:
            return False
    return True
