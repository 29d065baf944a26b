"""Search engines whose files are away for a while, or for good."""

import json
from types import SimpleNamespace

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from services.receiver.indexnow import engines as module
from services.receiver.indexnow.engines import (
    READ_AGAIN_SECONDS,
    TRY_AGAIN_SECONDS,
    Engines,
    engine_of,
)
from shared.runtime.fetching import Fetched, FetchFailed

LIST = "https://list.example/"
KEY = "0123456789abcdef"


class Web:
    """A list of engines and their files; what is away cannot be fetched."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.listed = {"b": "https://b.example/", "y": "https://y.example/"}

    async def get(self, url, *, max_bytes, may_follow):
        if url in self.away:
            raise FetchFailed("nobody there")
        engine = {
            "host": url.removeprefix("https://").strip("/"),
            "publicKeys": [KEY],
            "notifierIPs": [{"ipv4Prefix": "192.0.2.0/24"}],
        }
        value = self.listed if url == LIST else engine
        headers = CIMultiDictProxy(CIMultiDict())
        return Fetched(url, 200, headers, json.dumps(value).encode())


ADDRESS = "192.0.2.7"


@pytest.mark.parametrize(
    ("address", "is_theirs"),
    [
        (ADDRESS, True),
        # As a receiver that listens on IPv6 sees who comes over IPv4.
        (f"::ffff:{ADDRESS}", True),
        ("2001:db8::7%eth0", True),
        ("192.0.3.7", False),
        ("::ffff:192.0.3.7", False),
        ("2001:db9::7", False),
        ("unix", False),
        ("", False),
    ],
)
def test_an_engine_is_known_by_its_addresses_however_they_are_written(address, is_theirs):
    prefixes = [{"ipv4Prefix": "192.0.2.0/24"}, {"ipv6Prefix": "2001:db8::/32"}]
    engine = engine_of({"host": "b.example", "publicKeys": [KEY], "notifierIPs": prefixes})
    assert engine.sent_from(address, KEY) is is_theirs
    assert not engine.sent_from(address, KEY[::-1])


class Enough(Exception):
    """Of the reading."""


@pytest.fixture
def read_each_time(monkeypatch):
    """A function that lets the list be read after each of some changes: waits, and who is known
    each time."""

    async def reading(web, *changes):
        engines, waits, known, left = Engines(web, LIST), [], [], list(changes)

        async def sleep(seconds):
            waits.append(seconds)
            names = ("b", "y")
            known.append("".join(n for n in names if engines.known(f"{n}.example", KEY, ADDRESS)))
            if not left:
                raise Enough
            left.pop(0)()

        monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
        with pytest.raises(Enough):
            await engines.run()
        return waits, known

    return reading


async def test_an_engine_whose_file_is_away_stays_known_and_is_asked_again_soon(read_each_time):
    web = Web()
    changes = [
        lambda: web.away.add("https://b.example/"),
        lambda: None,
        web.away.clear,
        lambda: web.away.add("https://b.example/"),
    ]
    waits, known = await read_each_time(web, *changes)
    assert known == ["by"] * 5
    # Ever more rarely, and soon again the next time.
    soon = TRY_AGAIN_SECONDS
    assert waits == [READ_AGAIN_SECONDS, soon, 2 * soon, READ_AGAIN_SECONDS, soon]


async def test_an_engine_that_the_list_names_no_more_is_unknown_whatever_its_file_says(
    read_each_time,
):
    web = Web()

    def leave_out():
        web.away.add("https://b.example/")
        del web.listed["b"]

    assert (await read_each_time(web, leave_out))[1] == ["by", "y"]


async def test_while_the_list_is_away_all_stay_known_and_one_that_never_answered_is_not(
    read_each_time,
):
    web = Web()
    web.away = {"https://y.example/"}
    waits, known = await read_each_time(web, lambda: web.away.add(LIST), web.away.clear)
    assert known == ["b", "b", "by"]
    assert waits == [TRY_AGAIN_SECONDS, 2 * TRY_AGAIN_SECONDS, READ_AGAIN_SECONDS]
