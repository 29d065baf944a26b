"""The checks of `freshet verify` find what they are for: each is shown a run that breaks it."""

from array import array
from types import SimpleNamespace

import pytest
import xxhash
from made_ledgers import (
    HERE,
    PAGE,
    SHARDS,
    TIMEOUT,
    URL,
    answered,
    asked,
    at_the_broker,
    ledger,
    stored,
)

from services.verify.checking import demands, unsure_of
from services.verify.checks import delivery, limits, pages, requests
from services.verify.checks.recovery import recovery
from services.verify.faults import Injected
from services.verify.plan import VerifyPlan
from services.verify.sending import Account, Refusal
from services.verify.traffic import Expected
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageSignal, PageUpdate, Signal


def test_a_second_request_before_the_answer_is_found():
    first, second = asked(10.0), asked(10.5)
    early = ledger(requests=[first, second], outcomes=[answered(first, 10.6)])
    in_time = ledger(requests=[first, second], outcomes=[answered(first, 10.4)])
    late = ledger(requests=[first, asked(10.0 + TIMEOUT)])

    assert requests.in_flight_twice(early).count == 1
    assert requests.in_flight_twice(in_time).passed
    assert requests.in_flight_twice(late).passed


def test_a_request_is_late_by_the_settings_whatever_deadline_it_names():
    hasty, second = asked(10.0, deadline_at=10.2), asked(10.5)

    assert requests.in_flight_twice(ledger(requests=[hasty, second])).count == 1


def test_a_request_that_nobody_asks_again_is_found():
    first, second = asked(10.0), asked(20.0)

    assert requests.unanswered(ledger(requests=[first])).count == 1
    assert requests.unanswered(
        ledger(requests=[first, second], outcomes=[answered(second, 20.1)])
    ).passed


@pytest.mark.parametrize(("result", "found"), [("gone", 0), ("disallowed", 0), ("failed", 1)])
def test_a_page_that_was_found_gone_is_asked_for_by_its_own_rhythm(result, found):
    first, second = asked(10.0), asked(20.0)

    run = ledger(requests=[first, second], outcomes=[answered(first, 10.1, result)])

    assert requests.unanswered(run).count == found


def test_a_crawl_after_a_request_answers_it_whoever_asked():
    first, second = asked(10.0), asked(10.0 + TIMEOUT, reason="retry")
    late = [answered(first, 10.5 + TIMEOUT)]

    assert requests.unanswered(ledger(requests=[first, second], outcomes=late)).passed


@pytest.mark.parametrize(
    ("result", "named_at", "found"),
    [
        *(("redirected", None, 1), ("disallowed", 10.0, 1), ("canonical", 50.0, 1)),
        *(("redirected", 20.0, 0), ("gone", None, 0), ("unchanged", None, 0)),
    ],
)
def test_who_is_away_is_not_asked_for_until_somebody_names_it(result, named_at, found):
    first, second = asked(10.0), asked(40.0)
    signals = [PageSignal(PAGE.page_id, URL, PAGE.host, "feed", named_at or 0.0)]
    outcome = answered(first, 10.1, result)
    run = ledger(requests=[first, second], outcomes=[outcome], page_signals=signals)
    assert requests.asked_while_away(run, []).count == found

    update = PageUpdate("upsert", URL, updated_at=named_at or 0.0)
    run = ledger(requests=[first, second], outcomes=[outcome])
    assert requests.asked_while_away(run, [update]).count == found
    assert requests.asked_while_away(ledger(requests=[first]), []).passed


def test_a_slot_that_was_filled_twice_is_found():
    other = "https://a.example/1"

    assert requests.slots_filled_once(ledger(requests=[asked(10.0), asked(10.0, other)])).count == 1
    assert requests.slots_filled_once(ledger(requests=[asked(10.0), asked(10.1, other)])).passed


def test_two_shards_in_one_slot_are_found():
    elsewhere = next(
        url
        for url in (f"https://{letter}.example/0" for letter in "bcdefgh")
        if shard_of(identify(url).host, SHARDS) != HERE
    )

    found = requests.slots_filled_once(ledger(requests=[asked(10.0), asked(10.0, elsewhere)]))

    assert found.count == 1


def test_a_request_on_another_shard_is_found():
    assert requests.right_partitions(ledger(requests=[asked(1.0, partition=HERE ^ 1)])).count == 1
    assert requests.right_partitions(ledger(requests=[asked(1.0)])).passed


def test_a_second_over_the_budget_is_found():
    changes = [(0.0, 4.0), (100.0, 2.0)]
    four = [asked(50.0 + n / 4) for n in range(5)]
    too_many = [asked(110.0 + n / 5) for n in range(5)]
    settling = [asked(101.0 + n / 4) for n in range(4)]

    assert limits.budget(ledger(requests=four), changes, 200.0).passed
    assert limits.budget(ledger(requests=too_many), changes, 200.0).count == 1
    assert limits.budget(ledger(requests=settling), changes, 200.0).passed


def test_a_single_crawl_too_many_is_found():
    on_time = [asked(50.0 + n / 4) for n in range(8)]
    one_more = asked(50.9)

    crawls = sorted([*on_time, one_more], key=lambda one: one.request.requested_at)
    found = limits.budget(ledger(requests=crawls), [(0.0, 4.0)], 200.0)

    assert found.examples == ["second 50: 1 too many"]


def test_a_host_over_its_limit_is_found():
    at_once = [asked(10.0), asked(10.01), asked(10.02)]
    in_turn = [asked(10.0), asked(10.01), asked(10.51)]

    assert limits.hosts(ledger(requests=at_once), {PAGE.host: 2.0}).count == 1
    assert limits.hosts(ledger(requests=in_turn), {PAGE.host: 2.0}).passed


def test_a_host_over_its_limit_is_found_by_when_the_requests_came():
    slots = [10.0 + n / 2 for n in range(20)]
    at_once = ledger(requests=[asked(slot, written_at=20.0) for slot in slots])
    limit = {PAGE.host: 2.0}

    assert limits.hosts(at_once, limit).passed
    assert limits.hosts_by_arrival(at_once, limit, ()).count == 1
    assert limits.hosts_by_arrival(at_the_broker(slots, 0.3), limit, ()).passed


def test_a_crawl_during_a_pause_is_found():
    busy = answered(asked(10.0), 10.1, "failed", http_status=429, retry_after_seconds=5.0)

    def offences(time, downtimes=()):
        return limits.blocked_hosts(
            ledger(requests=[asked(time)], outcomes=[busy]), downtimes
        ).count

    assert [offences(10.9), offences(14.8), offences(15.2)] == [0, 1, 0]
    assert offences(14.8, [(10.5, 12.9)]) == 0  # the news may have been on its way
    assert offences(14.8, [(8.0, 11.0), (12.0, 12.5)]) == 1  # by then it had come


def test_news_of_a_pause_that_is_passed_on_may_take_longer():
    busy = answered(asked(10.0), 10.1, "failed", http_status=429, retry_after_seconds=30.0)

    def offences(time):
        moved = asked(time, partition=busy.partition + SHARDS)
        return limits.blocked_hosts(ledger(requests=[moved], outcomes=[busy]), ()).count

    assert [offences(18.9), offences(19.4)] == [0, 1]


def test_crawls_lost_and_applied_twice_are_found():
    outcomes = [answered(asked(10.0), 10.1), answered(asked(20.0), 20.1)]

    def check(crawls, last):
        run = ledger(outcomes=[*outcomes, outcomes[1]], pages=[stored(URL, crawls, last)])
        return [finding.count for finding in delivery.crawls_applied(run, {})]

    assert check(2, 20.1) == [0, 0]
    assert check(1, 20.1) == [1, 0]
    assert check(3, 20.1) == [0, 1]
    assert check(2, 10.1) == [1, 0]


def test_a_look_that_did_not_get_the_page_is_no_crawl_of_it():
    outcomes = [
        answered(asked(10.0), 10.1),
        answered(asked(20.0), 20.1, "failed", http_status=500),
        answered(asked(30.0), 30.1, "gone", http_status=404),
    ]

    def check(crawls, last):
        run = ledger(outcomes=outcomes, pages=[stored(URL, crawls, last)])
        return [finding.count for finding in delivery.crawls_applied(run, {})]

    assert check(1, 10.1) == [0, 0]
    assert check(2, 30.1) == [0, 1]


def test_another_version_may_take_for_a_crawl_what_this_one_does_not():
    outcomes = [
        answered(asked(10.0), 10.1),
        answered(asked(20.0), 20.1, "failed", http_status=500),
        answered(asked(30.0), 30.1, "gone", http_status=404),
    ]

    def check(crawls, last):
        run = ledger(outcomes=outcomes, pages=[stored(URL, crawls, last)])
        return [finding.count for finding in delivery.crawls_applied(run, {}, ("gone",))]

    assert check(1, 10.1) == [0, 0]
    assert check(2, 30.1) == [0, 0]
    assert check(3, 30.1) == [0, 1]
    assert check(1, 20.1) == [1, 0]


def test_a_signal_that_was_not_passed_on_is_found():
    sent = [
        (5.0, Signal(URL, "s", 4.0)),
        (5.5, Signal(URL, "s", 4.5)),
        (9.0, Signal(URL, "s", 8.0)),
    ]
    first = PageSignal(PAGE.page_id, URL, PAGE.host, "s", 4.0)
    last = PageSignal(PAGE.page_id, URL, PAGE.host, "s", 8.0)

    assert delivery.signals_passed(ledger(signals=sent, page_signals=[first, last])).passed
    assert delivery.signals_passed(ledger(signals=sent, page_signals=[first])).count == 1


def test_a_record_that_the_broker_lost_is_found():
    account = Account()
    account.add("signals", 0, 7, b"said")
    there = {"signals": [SimpleNamespace(partition=0, offset=7, value=b"said")]}
    other = {"signals": [SimpleNamespace(partition=0, offset=7, value=b"another")]}

    assert account.offsets["signals", 0] == array("q", [7])
    assert delivery.published(ledger(raw=there), account).passed
    assert delivery.published(ledger(raw=other), account).count == 1
    assert delivery.published(ledger(raw={"signals": []}), account).count == 1


def refused_account(value, at=50.0):
    account = Account()
    account.refused.append(Refusal("page-updates", 0, value, at, at + 2.0, "no answer"))
    return account


def test_a_send_that_is_refused_while_the_broker_is_up_is_found():
    account = refused_account(b"said")

    assert delivery.refused(ledger(), [(51.0, 60.0)], account).passed
    assert delivery.refused(ledger(), [(30.0, 45.0)], account).count == 1


def test_what_was_refused_counts_neither_as_published_nor_as_lost():
    account = refused_account(b"said")
    there = ledger(raw={"page-updates": [SimpleNamespace(value=b"said", partition=0, offset=7)]})

    assert delivery.published(ledger(raw={"page-updates": []}), account).passed
    found = delivery.refused(there, [(51.0, 60.0)], account)
    assert found.figures == {"refused": 1, "there_all_the_same": 1}


def test_a_page_about_which_an_update_was_refused_is_not_judged():
    update = encode(PageUpdate("upsert", URL, importance=2.0, updated_at=9.0))
    expected = Expected(added={URL: 1.0}, importance={URL: 2.0})
    unsure = unsure_of([refused_account(update)])

    assert unsure == {URL}
    assert pages.as_updated(ledger(pages=[]), expected).count == 1
    assert pages.as_updated(ledger(pages=[]), pages.without(expected, unsure)).passed


def test_a_letter_about_bad_messages_whose_acknowledgement_was_lost_is_no_surprise():
    headers = [("topic", b"signals"), ("partition", b"0"), ("offset", b"7")]
    headers += [("stage", b"ingester"), ("error", b"bad")]
    run = ledger(raw={"dead-letters": [SimpleNamespace(headers=headers, value=b"rubbish")]})

    assert delivery.dead_letters(run, {}, ()).count == 1
    tried = {xxhash.xxh3_64_intdigest(b"rubbish")}
    assert delivery.dead_letters(run, {}, (), tried).passed


@pytest.mark.parametrize(
    ("check", "faults", "seconds", "demanded"),
    [
        ("slots", ("kill",), 6.0, True),
        ("dead letters", ("kill",), 60.0, False),
        ("dead letters", ("poison",), 60.0, True),
        ("recovery", ("poison", "duplicate"), 60.0, False),
        ("recovery", ("kill", "poison"), 60.0, True),
        ("pauses", ("kill",), 6.0, False),
        ("pauses", ("kill",), 60.0, True),
    ],
)
def test_what_a_plan_demands(check, faults, seconds, demanded):
    assert demands(VerifyPlan(seconds, faults), check) is demanded


def test_dead_letters_that_are_missing_or_surprising_are_found():
    headers = [("topic", b"signals"), ("partition", b"0"), ("offset", b"7")]
    headers += [("stage", b"ingester"), ("error", b"bad")]
    run = ledger(raw={"dead-letters": [SimpleNamespace(headers=headers, value=b"")] * 2})
    place, other = ("signals", 0, 7), ("signals", 0, 8)

    assert delivery.dead_letters(run, {place: "bad"}, ()).passed
    assert delivery.dead_letters(run, {}, ()).count == 1
    assert delivery.dead_letters(run, {place: "bad", other: "bad"}, ()).count == 1
    assert delivery.dead_letters(run, {place: "bad", other: "bad"}, {other}).passed


def test_a_page_that_no_shard_knows_is_found():
    assert pages.known_to_shards(
        ledger(), {HERE: 1} | dict.fromkeys({0, 1, 2, 3} - {HERE}, 0)
    ).passed
    assert pages.known_to_shards(ledger(), dict.fromkeys(range(SHARDS), 0)).count == 1


def test_updates_that_did_not_take_effect_are_found():
    added = Expected(added={URL: 1.0}, importance={URL: 2.0})
    removed = Expected(removed={URL: 1.0})

    assert pages.as_updated(ledger(pages=[stored(importance=2.0)]), added).passed
    assert pages.as_updated(ledger(pages=[stored(importance=1.0)]), added).count == 1
    assert pages.as_updated(ledger(pages=[]), added).count == 1
    assert pages.as_updated(ledger(), removed).count == 1
    assert pages.removed_are_left(ledger(requests=[asked(9.0)]), removed, []).count == 1
    assert pages.removed_are_left(ledger(requests=[asked(9.0)]), removed, [(1.0, 9.0)]).passed


def test_recovery_is_measured_from_the_end_of_the_fault():
    times = [n / 10 for n in range(200)] + [n / 10 for n in range(260, 600)]
    run = ledger(requests=[asked(at) for at in times])
    fault = Injected("kill", "a worker", 20.0, 22.0, settled=30.0)

    found = recovery(run, [fault], [(0.0, 10.0)], 60.0)

    assert found.passed
    assert found.figures["by_fault"]["kill"]["max_seconds"] == pytest.approx(4.8, abs=0.25)


@pytest.mark.parametrize(("late", "seconds"), [(0.0, 4.8), (0.4, 4.8), (2.0, 35.0)])
def test_requests_that_are_sent_a_moment_late_are_no_part_of_a_fault_long_before(late, seconds):
    times = [n / 10 for n in range(200)] + [n / 10 for n in range(260, 800)]
    run = ledger(requests=[asked(at, written_at=at + late * (55.0 <= at < 56.0)) for at in times])
    fault = Injected("grow", "the shards", 20.0, 22.0, settled=30.0)

    found = recovery(run, [fault], [(0.0, 10.0)], 80.0).figures["by_fault"]["grow"]

    assert found["max_seconds"] == pytest.approx(seconds, abs=0.3)


def test_a_system_that_does_not_come_back_is_found():
    run = ledger(requests=[asked(n / 10) for n in range(200)])

    never = Injected("kill", "a worker", 20.0, 20.0)

    assert recovery(run, [never], [(0.0, 10.0)], 100.0).count >= 1
