"""What a stream costs and brings, written down or not."""

import aiohttp
import pytest

from services.poller.accounts import MOST_VALUED, VALUED_SECONDS, StreamAccount
from services.poller.reading import in_words
from shared.policy.polls import kept_after
from shared.runtime.pings import Ping
from shared.runtime.shown_urls import shown
from shared.units import SECONDS_PER_DAY

NOW = 1_700_000_000.0


class Prices:
    """Each known page is worth 2 where λ₀ is known."""

    def __init__(self, known=10**9):
        self.known, self.is_there, self.asked = known, True, []

    async def of_slot(self):
        return 1.0 if self.is_there else 0.0

    async def worth_of_known(self, pages, price):
        self.asked.append(len(pages))
        return 2.0 * min(len(pages), self.known)


def pings(*numbers, late=5.0):
    return [Ping(f"https://a.example/{n}", "a.example", NOW - late) for n in numbers]


def account(prices=None, url="https://s.example/stream"):
    return StreamAccount("wiki", url, prices or Prices(), NOW)


async def test_what_the_database_did_not_take_is_said_again_and_nothing_twice():
    some = account()
    some.connecting()
    some.came(700)
    for result in ("signal", "signal", "bad", "ignored"):
        some.event(result)
    some.published("wiki", pings(1), NOW)
    some.published("wiki-bots", pings(2), NOW)
    for _ in range(2):
        own, bots = await some.news(NOW + 1)
        assert (own.connections, own.bytes_read, own.events, own.bad_events) == (1, 700, 4, 1)
        assert (own.signals, own.exact_signals, own.delay_seconds) == (1, 1, 5.0)
        assert (bots.source, bots.signals, bots.connections, bots.bytes_read) == (
            "wiki-bots",
            1,
            0,
            0,
        )
        assert some.is_new
    some.written()
    assert not some.is_new
    some.event("ignored")
    own, bots = await some.news(NOW + 2)
    assert (own.events, own.signals, own.connections, bots.signals) == (1, 0, 0, 0)


async def test_a_connection_that_brings_no_event_is_a_failure_until_one_comes():
    some = account()
    for failures in (1, 2, 3):
        some.connecting()
        some.came(10)
        some.disconnected(f"it answers 50{failures}\n")
        [own] = await some.news(NOW)
        assert (own.failures, own.reason) == (failures, f"it answers 50{failures}")
    some.published("wiki-bots", pings(1), NOW)
    own, bots = await some.news(NOW)
    assert (own.failures, bots.failures, bots.reason) == (3, 0, "")
    some.connecting()
    some.event("bad")
    some.disconnected("it ended")
    own, _ = await some.news(NOW)
    assert (own.failures, own.reason, own.connections) == (0, "", 4)


async def test_signals_are_worth_what_their_pages_are_and_strangers_nothing():
    prices = Prices(known=3)
    some = account(prices)
    some.published("wiki", pings(1, 1, 2), NOW)
    [own] = await some.news(NOW + VALUED_SECONDS - 1)
    assert (prices.asked, own.worth_days) == ([], 0.0)
    some.written()
    some.published("wiki", pings(3, 4, 5), NOW)
    [own] = await some.news(NOW + VALUED_SECONDS)
    # Five pages, of which Freshet has three; a page that is named twice counts once.
    assert (prices.asked, own.worth, own.worth_signals) == ([5], 6.0, 5.0)
    assert own.worth_days == pytest.approx(VALUED_SECONDS / SECONDS_PER_DAY)
    some.written()
    # A minute in which nothing came counts, too; one in which λ₀ is not known does not.
    [own] = await some.news(NOW + 2 * VALUED_SECONDS)
    assert (own.worth, own.worth_days) == (0.0, pytest.approx(VALUED_SECONDS / SECONDS_PER_DAY))
    some.written()
    prices.is_there = False
    [own] = await some.news(NOW + 3 * VALUED_SECONDS)
    assert own.worth_days == 0.0


async def test_of_very_many_signals_the_first_stand_for_the_others():
    prices = Prices()
    some = account(prices)
    for first in range(0, 4 * MOST_VALUED, 50):
        some.published("wiki", pings(*range(first, first + 50)), NOW)
    [own] = await some.news(NOW + VALUED_SECONDS)
    assert prices.asked == [MOST_VALUED]
    assert (own.worth, own.worth_signals) == (8.0 * MOST_VALUED, 4.0 * MOST_VALUED)


def test_what_was_brought_a_memory_ago_counts_e_times_less():
    assert kept_after(0.0) == 1.0
    assert kept_after(60.0) == pytest.approx(0.36788, rel=1e-4)


def test_nobody_is_shown_what_may_be_secret_of_a_stream():
    assert shown("wss://me:pw@s.example:8443/a?token=x#y") == "wss://s.example:8443/a"
    assert shown("https://me:p@w@[x?token=x") == "https://[x"
    assert shown("me:pw@s.example?token=x") == "s.example"
    secret = "https://s.example/?token=x"
    elsewhere = (aiohttp.InvalidURL(secret), aiohttp.NonHttpUrlRedirectClientError(secret))
    for error in (TimeoutError(secret), ValueError("it answers 404"), *elsewhere):
        assert "token" not in in_words(error)
    assert in_words(ConnectionResetError()) == "ConnectionResetError"


async def test_a_clock_that_is_put_back_stops_no_account_and_takes_nothing_away():
    prices = Prices()
    some = account(prices)
    some.published("wiki", pings(1), NOW)
    [own] = await some.news(NOW - 3600.0)
    assert (prices.asked, own.worth, own.worth_days) == ([1], 2.0, 0.0)
