"""Key files: fetched once, looked at again, and no flood of questions at anybody's host."""

import asyncio
import contextlib
import gc
import tracemalloc

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from services.receiver.indexnow.keys import (
    CHECKS_OF_VISITOR,
    INVALID_SECONDS,
    MOST_CHECKS,
    KeyBook,
    Verdict,
    is_same_file,
)
from services.receiver.indexnow.submission import KeyFile
from services.receiver.refusing import Refused
from shared.runtime.fetching import Fetched, FetchFailed, NotFollowed

KEY = "0123456789abcdef"
DAY = 86_400.0
ELSEWHERE = "elsewhere"
GONE = (404, "")
LONG_PAGE = "<html>" + "x" * 5000
VISITOR = "192.0.2.1"


class Web:
    """Hosts that show what a test sets; and a clock that it moves."""

    def __init__(self) -> None:
        self.shown: str | tuple[int, str] | None = KEY
        self.asked: list[str] = []
        self.now = 0.0
        self.held: asyncio.Event | None = None

    async def get(self, url, *, max_bytes, may_follow, cut):
        self.asked.append(url)
        if self.held is not None:
            await self.held.wait()
        if self.shown is None:
            raise FetchFailed("nobody there")
        if self.shown == ELSEWHERE:
            raise NotFollowed("it redirects to /login, which is not followed")
        status, text = self.shown if isinstance(self.shown, tuple) else (200, self.shown)
        if len(text) > max_bytes and not cut:
            raise FetchFailed(f"it has more than {max_bytes} bytes")
        body = text.encode()[:max_bytes]
        return Fetched(url, status, CIMultiDictProxy(CIMultiDict()), body)

    def book(self, wait_seconds=60.0) -> KeyBook:
        return KeyBook(self, DAY, wait_seconds, lambda: self.now)


@pytest.fixture
def web():
    return Web()


def file(key=KEY, host="a.example", schemes=("https",)):
    return KeyFile(host, key, tuple(f"{s}://{host}/{key}.txt" for s in schemes), "/")


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        (KEY, Verdict.VALID),
        (f"\ufeff{KEY}\r\n", Verdict.VALID),
        (KEY.upper(), Verdict.INVALID),
        (f"<html>{KEY}</html>", Verdict.INVALID),
        (f"{KEY}\n{KEY}", Verdict.INVALID),
        (KEY + " " * 2000, Verdict.INVALID),
        *(((status, text), Verdict.INVALID) for status in (404, 410) for text in ("", LONG_PAGE)),
        (ELSEWHERE, Verdict.INVALID),
        *(((status, LONG_PAGE), Verdict.UNREACHABLE) for status in (429, 500, 503)),
        (None, Verdict.UNREACHABLE),
    ],
)
async def test_a_key_is_what_its_file_holds_and_nothing_else(web, shown, verdict):
    web.shown = shown
    assert await web.book().verdict(file(), VISITOR) is verdict


async def test_a_file_is_fetched_once_until_its_day_is_over(web):
    book = web.book()
    for _ in range(3):
        assert await book.verdict(file(), VISITOR) is Verdict.VALID
    assert len(web.asked) == 1
    # A host that is away has not taken its key back; one that shows another has.
    for shown, verdict in ((None, Verdict.VALID), (GONE, Verdict.INVALID)):
        web.now += DAY + 1
        web.shown = shown
        assert await book.verdict(file(), VISITOR) is Verdict.VALID
        await asyncio.sleep(0)
        await book.stop()
        assert await book.verdict(file(), VISITOR) is verdict
    assert len(web.asked) == 3
    web.shown = KEY
    web.now += INVALID_SECONDS
    assert await book.verdict(file(), VISITOR) is Verdict.VALID


async def rechecked(book, web, shown):
    """What is known of the key when its file has been looked at again, and shows this."""
    web.now += DAY + 1
    web.shown = shown
    await book.verdict(file(), VISITOR)
    for _ in range(2):
        await asyncio.sleep(0)
    return await book.verdict(file(), VISITOR)


@pytest.mark.parametrize("shown", [(404, LONG_PAGE), LONG_PAGE, ELSEWHERE])
async def test_a_key_is_taken_back_however_its_site_says_that_a_file_is_not_there(web, shown):
    book = web.book()
    await book.verdict(file(), VISITOR)
    assert await rechecked(book, web, shown) is Verdict.INVALID


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_host_that_is_overloaded_when_it_is_looked_at_again_has_kept_its_key(web, status):
    book = web.book()
    await book.verdict(file(), VISITOR)
    assert await rechecked(book, web, (status, "")) is Verdict.VALID
    assert await rechecked(book, web, GONE) is Verdict.INVALID


async def test_many_who_ask_for_one_key_wait_for_one_fetch(web):
    web.held = asyncio.Event()
    book = web.book()
    asking = [asyncio.ensure_future(book.verdict(file(), VISITOR)) for _ in range(20)]
    await asyncio.sleep(0)
    web.held.set()
    assert set(await asyncio.gather(*asking)) == {Verdict.VALID}
    assert len(web.asked) == 1


async def test_made_up_keys_draw_few_questions_at_a_host_and_few_at_all(web):
    book = web.book()
    web.shown = GONE
    for n in range(5):
        assert await book.verdict(file(f"made-up-{n}"), f"192.0.2.{n}") is Verdict.INVALID
    with pytest.raises(Refused) as refused:
        await book.verdict(file("made-up-5"), VISITOR)
    assert (refused.value.status, refused.value.retry_seconds) == (429, 3)
    web.now += 2.0
    assert await book.verdict(file("made-up-6"), VISITOR) is Verdict.INVALID
    web.held = asyncio.Event()
    book = web.book(wait_seconds=0.0)
    for n in range(MOST_CHECKS):
        assert await book.verdict(file(host=f"{n}.example"), f"192.0.2.{n}") is Verdict.PENDING
    with pytest.raises(Refused):
        await book.verdict(file(host="one-more.example"), "198.51.100.1")
    await book.stop()


async def test_who_makes_keys_up_for_a_host_keeps_its_own_people_from_nothing(web):
    book = web.book()
    web.shown = GONE
    made = 0
    for second in range(120):
        for _ in range(3):
            with contextlib.suppress(Refused):
                await book.verdict(file(f"made-up-{made}"), VISITOR)
                made += 1
        if second % 10 == 9:
            # Its owner, with a new key.
            assert await book.verdict(file(f"own-{second}"), "198.51.100.1") is Verdict.INVALID
        web.now += 1.0
    assert 45 <= made <= 55


async def test_one_visitor_makes_no_flood_of_questions_at_however_many_hosts(web):
    book = web.book()
    web.shown = GONE
    for number in range(1_000):  # in a second
        with contextlib.suppress(Refused):
            await book.verdict(file(host=f"victim.example:{1_000 + number}"), VISITOR)
        web.now += 0.001
    assert 200 <= len(web.asked) <= 220
    assert await book.verdict(file(host="other.example"), "198.51.100.1") is Verdict.INVALID


async def test_a_visitor_whose_hosts_are_slow_keeps_nobody_elses_keys_waiting(web):
    web.held = asyncio.Event()
    book = web.book(wait_seconds=0.0)
    for n in range(CHECKS_OF_VISITOR):
        assert await book.verdict(file(host=f"{n}.example"), VISITOR) is Verdict.PENDING
    with pytest.raises(Refused) as refused:
        await book.verdict(file(host="one-more.example"), VISITOR)
    assert refused.value.status == 429
    assert await book.verdict(file(host="0.example"), VISITOR) is Verdict.PENDING
    assert await book.verdict(file(host="other.example"), "198.51.100.1") is Verdict.PENDING
    web.held.set()
    await book.stop()
    # What is over does not count any more.
    for n in range(CHECKS_OF_VISITOR):
        await book.verdict(file(host=f"more-{n}.example"), VISITOR)
    await book.stop()


async def test_keys_that_strangers_make_up_take_little_memory_however_long_their_addresses(web):
    book, count = web.book(), 400
    web.shown = GONE

    async def ask(begin: int) -> None:
        for number in range(begin, begin + count):
            host, folder = f"h{number}.{'a' * 60}.{'b' * 60}.example", f"/{'d' * 1800}/"
            place = f"https://{host}{folder}{number}.txt"
            made_up = KeyFile(host, f"{number:0>128}", (place,), folder)
            assert await book.verdict(made_up, f"2001:db8:0:{number:x}::/64") is Verdict.INVALID
            web.asked.clear()

    await ask(0)
    gc.collect()
    tracemalloc.start()
    await ask(count)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 2_000


async def test_what_is_known_of_a_key_is_known_of_its_file_alone(web):
    book = web.book()
    assert await book.verdict(file(), VISITOR) is Verdict.VALID
    web.shown = GONE
    for other in (
        file(host="b.example"),
        file(key=KEY[::-1]),
        file(schemes=("https", "http")),
        KeyFile("a.example", KEY, (f"https://a.example/{KEY}.txt",), "/b/"),
    ):
        assert await book.verdict(other, VISITOR) is Verdict.INVALID
    assert await book.verdict(file(), VISITOR) is Verdict.VALID


async def test_http_is_asked_where_https_is_not_there_and_was_not_wanted_alone(web):
    web.shown = None
    await web.book().verdict(file(schemes=("https", "http")), VISITOR)
    assert [url.partition(":")[0] for url in web.asked] == ["https", "http"]


@pytest.mark.parametrize(
    ("target", "same"),
    [
        ("https://a.example/k.txt", True),
        ("http://a.example/k.txt", True),
        ("https://www.a.example/k.txt", False),
        ("https://a.example/user/k.txt", False),
        ("https://a.example/k.txt?x", False),
        ("https://a.example:8443/k.txt", False),
        ("ftp://a.example/k.txt", False),
    ],
)
def test_only_the_same_file_is_followed_to(target, same):
    assert is_same_file("http://a.example/k.txt", target) is same
