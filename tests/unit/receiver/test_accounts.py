"""What is kept of what each source has sent."""

from services.receiver.accounts import PingAccounts
from shared.runtime.pings import Ping
from shared.store.ping_accounts import PingNews

URL, HOST = "https://a.example/", "a.example"


def pings(*times):
    return [Ping(URL, HOST, at) for at in times]


def test_only_signals_that_say_when_are_late_and_none_comes_before_its_time():
    accounts = PingAccounts()
    accounts.published("cms", pings(90.0, None, 70.0), 100.0)
    # The sender's clock is ahead.
    accounts.published("cms", pings(130.0), 110.0)
    accounts.published("indexnow", pings(None, None), 110.0)
    assert sorted(accounts.taken()) == [
        PingNews("cms", 4, 3, 40.0),
        PingNews("indexnow", 2, 0, 0.0),
    ]
    assert accounts.taken() == []


def test_what_is_not_written_down_is_kept_for_the_next_time():
    accounts = PingAccounts()
    accounts.published("cms", pings(90.0), 100.0)
    news = accounts.taken()
    accounts.published("cms", pings(105.0), 110.0)
    accounts.give_back(news)
    assert accounts.taken() == [PingNews("cms", 2, 2, 15.0)]
