"""The crawler fleet of a verification: at its end it lets everything be asked for again."""

from typing import get_args

import pytest

from services.verify.crawlers import Crawlers
from services.verify.crowd import make_crowd
from shared.contracts.codec import decode, encode
from shared.contracts.messages import CrawlOutcome, CrawlRequest, Result
from shared.runtime.settings import load_settings


class Sender:
    """Keeps what is sent."""

    def __init__(self):
        self.outcomes = []

    def queue(self, _topic, _key, message):
        self.outcomes.append(message)


@pytest.mark.parametrize("is_the_end", [False, True])
def test_at_the_end_no_host_asks_for_a_pause(is_the_end):
    sender = Sender()
    crawlers = Crawlers(load_settings(), make_crowd(100, 1, 60.0), sender, 1)
    crawlers.answers_everything = is_the_end
    for number in range(3000):
        url = f"https://a.example/{number}"
        crawlers._answer(
            CrawlRequest(f"0-{number:x}-1", number, url, "a.example", 1.0, 9.0, 0.0, 0.0, "value")
        )
    busy = [outcome for outcome in sender.outcomes if outcome.http_status == 429]
    assert bool(busy) != is_the_end
    assert len(sender.outcomes) == 3000


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("in_old_words", [False, True])
def test_all_words_are_said_unless_an_older_version_listens(in_old_words):
    sender, crowd = Sender(), make_crowd(100, 1, 60.0)
    crawlers = Crawlers(load_settings(), crowd, sender, 1, in_old_words=in_old_words)
    for page_id in crowd.pages.page_ids.tolist() * 300:
        url = f"https://a.example/{page_id}"
        crawlers._answer(
            CrawlRequest("0-1-1", page_id, url, "a.example", 1.0, 9.0, 0.0, 0.0, "value")
        )
    said = {outcome.result for outcome in sender.outcomes}
    old = {"changed", "unchanged", "gone", "failed", None}
    assert said == (old if in_old_words else {*old, *get_args(Result)})
    assert all(decode(CrawlOutcome, encode(one)) == one for one in sender.outcomes)


def test_a_page_whose_request_is_left_unanswered_is_noted_until_it_is_asked_for_again():
    crawlers = Crawlers(load_settings(), make_crowd(100, 1, 60.0), Sender(), 1)
    request = CrawlRequest(
        *("0-1-1", 1, "https://a.example/1", "a.example"), *(1.0, 9.0, 0.0, 0.0, "value")
    )
    while not crawlers.left:
        crawlers._take(encode(request), 0.0)
    assert crawlers.left == {1}

    crawlers.answers_everything = True
    crawlers._take(encode(request), 0.0)
    assert not crawlers.left
