"""Each request is handed out, answered or let go of; none is forgotten before that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.frontier.book import Book
from services.frontier.positions import Positions
from shared.contracts.messages import CrawlRequest

NOW = 1000.0
LATE = NOW + 120.0


def request(name, host="a.example", deadline=LATE, at=NOW):
    return CrawlRequest(name, 1, f"https://{host}/{name}", host, at, deadline, 1.0, 1.0, "value")


@pytest.fixture
def book():
    return Book(100)


def fill(book, *requests, partition=0):
    for offset, asked in enumerate(requests):
        book.begin(asked, partition, offset, NOW)


def names(tickets):
    return [ticket.request.request_id for ticket in tickets]


def test_hosts_take_turns_and_the_oldest_of_each_goes_first(book):
    fill(book, *(request(f"{host}{n}", host) for n in range(3) for host in "abc"))
    assert names(book.take(2, 2, None, 0, NOW)) == ["a0", "a1", "b0", "b1"]
    assert names(book.take(2, 2, None, 0, NOW)) == ["c0", "c1", "a2"]
    assert names(book.take(0, 0, None, 0, NOW)) == ["b2", "c2"]
    assert (book.waiting(), book.in_flight(), book.in_flight("a")) == (0, 9, 3)


def test_one_host_alone_can_be_asked_for(book):
    fill(book, request("1", "a"), request("2", "b"))
    assert names(book.take(0, 0, "b", 0, NOW)) == ["2"]
    assert book.take(0, 0, "nobody", 0, NOW) == []


def test_a_blocked_host_is_passed_over_until_its_time_and_others_are_not(book):
    fill(book, request("1", "a"), request("2", "b"))
    book.block("a", NOW + 10, NOW + 5)
    assert names(book.take(1, 0, None, 0, NOW)) == ["2"]
    assert names(book.take(0, 0, None, 0, NOW + 10)) == ["1"]


def test_what_is_asked_for_in_spite_of_a_block_is_handed_out_as_somebody_has_ended_it(book):
    """The last to speak counts: an operator, say, or another frontier, of whom it does not hear."""
    later = NOW + 11.0
    fill(book, request("1"), request("2", at=NOW + 9.0))
    book.block("a.example", NOW + 1e6, NOW + 10.0)
    book.begin(request("3", at=later), 0, 2, later)
    assert names(book.take(0, 0, None, 0, later)) == ["3"]
    assert book.waiting() == 2
    book.block("a.example", 0.0, later)
    assert names(book.take(0, 0, None, 0, later)) == ["1", "2"]


def test_what_is_not_answered_is_handed_out_again_after_its_delay_and_before_others(book):
    fill(book, request("1"), request("2"))
    book.take(0, 1, None, 30.0, NOW)
    book.turn(NOW + 29)
    assert book.waiting() == 1
    book.turn(NOW + 30)
    [first, second] = book.take(0, 0, None, 0, NOW + 31)
    assert names([first, second]) == ["1", "2"]
    assert first.given_at == NOW


def test_without_a_delay_it_is_not(book):
    fill(book, request("1"))
    book.take(0, 0, None, 0, NOW)
    book.turn(LATE - 1)
    assert (book.waiting(), book.in_flight()) == (0, 1)


def test_its_position_stays_until_it_is_answered_or_late(book):
    fill(book, request("1"), request("2", deadline=NOW + 50), request("3"))
    first = book.take(0, 0, None, 0, NOW)[0]
    assert book.positions.to_commit() == {}
    book.turn(NOW + 50)
    book.answer(first, NOW)
    assert book.positions.to_commit() == {0: 2}
    book.turn(LATE)
    assert book.positions.to_commit() == {0: 3}
    assert (book.waiting(), book.in_flight(), book.room) == (0, 0, 100)


def test_a_late_request_and_a_record_that_is_none_hold_nothing_up(book):
    fill(book, request("1", deadline=NOW))
    book.pass_over(0, 1)
    assert book.take(0, 0, None, 0, NOW) == []
    assert book.positions.to_commit() == {0: 2}


def test_an_answer_is_to_the_request_it_names_else_to_the_last_for_its_url(book):
    old, new = request("1"), request("1")
    fill(book, old, CrawlRequest("2", *[getattr(new, f) for f in new.__struct_fields__[1:]]))
    assert book.find("1", "").request.request_id == "1"
    assert book.find(None, old.url).request.request_id == "2"
    assert book.find("unknown", old.url) is None
    book.answer(book.find(None, old.url), NOW)
    assert book.find(None, old.url) is None


def test_what_did_not_reach_its_client_is_handed_out_anew_in_its_order(book):
    fill(book, request("1"), request("2"), request("3"))
    tickets = book.take(0, 0, None, 0, NOW)
    book.put_back(reversed(tickets[1:]))
    assert names(book.take(0, 0, None, 0, NOW)) == ["2", "3"]


def test_after_a_rebalance_what_stays_is_not_handed_out_twice(book):
    fill(book, request("1"), request("2"), request("3"))
    fill(book, request("4", "b"), partition=1)
    one, two = book.take(0, 2, "a.example", 0, NOW)
    book.answer(one, NOW)
    book.share([0])
    assert book.waiting("b") == 0, "it is somebody else's"
    fill(book, request("1"), request("2"), request("3"))
    assert names(book.take(0, 0, None, 0, NOW)) == ["3"]
    assert book.positions.to_commit() == {0: 1}
    book.answer(two, NOW)
    assert book.positions.to_commit() == {0: 2}


def test_what_is_handed_out_is_known_though_its_partition_is_anothers_now(book):
    """Its answer may come here."""
    fill(book, request("1"))
    fill(book, request("2"), partition=1)
    book.take(0, 0, None, 0, NOW)
    book.share([0])
    assert book.in_flight() == 2
    ticket = book.find("2", "")
    assert ticket.given_at == NOW
    book.answer(ticket, NOW)
    assert book.in_flight() == 1
    assert book.positions.to_commit() == {}, "its position is its reader's"


def test_a_request_that_was_sent_twice_is_waited_for_once_where_it_was_read_last(book):
    fill(book, request("1"), request("2"), request("1"), request("3"))
    one, two, three = book.take(0, 0, None, 0, NOW)
    assert names([one, two, three]) == ["1", "2", "3"]
    book.answer(two, NOW)
    assert book.positions.to_commit() == {0: 2}
    book.answer(one, NOW)
    book.answer(three, NOW)
    assert book.positions.to_commit() == {0: 4}


def test_a_full_book_has_no_room(book):
    fill(book, *(request(str(n)) for n in range(100)))
    assert book.room == 0
    book.answer(book.take(0, 1, None, 0, NOW)[0], NOW)
    assert book.room == 1


@given(st.permutations(range(8)), st.integers(0, 8))
def test_what_may_be_committed_is_what_was_done_without_a_gap(order, many):
    positions = Positions()
    for offset in range(8):
        positions.begin(3, 10 + offset)
    for offset in order[:many]:
        positions.finish(3, 10 + offset)
    left = [offset for offset in range(8) if offset not in order[:many]]
    position = 10 + (left[0] if left else 8)
    assert positions.to_commit() == ({3: position} if position > 10 else {})
    positions.committed({3: position})
    assert positions.to_commit() == {}
