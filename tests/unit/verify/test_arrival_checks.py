"""The checks by arrival find requests that come too late, and too many at once."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from made_ledgers import asked, at_the_broker, ledger

from services.scheduler.flow import pacer
from services.verify import audit, sending
from services.verify.checks import limits
from services.verify.crowd import make_crowd
from services.verify.plan import VerifyPlan
from services.verify.sending import Sender
from services.verify.traffic import Traffic
from services.verify.verification import Verification
from shared.contracts.codec import decode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.runtime.settings import load_settings


def test_slots_that_are_filled_at_once_are_found_by_when_they_came():
    slots = [50.0 + n / 4 for n in range(40)]
    changes = [(0.0, 4.0)]
    burst = ledger(requests=[asked(slot, written_at=60.0) for slot in slots])

    assert limits.budget(burst, changes, 200.0).passed  # each has its slot
    assert limits.budget_by_arrival(at_the_broker(slots, 0.2), changes, ()).passed
    assert limits.budget_by_arrival(burst, changes, ()).count == 1
    held_up = limits.budget_by_arrival(burst, changes, [(49.0, 60.0)])
    assert held_up.passed
    assert held_up.figures["held_up"] == 30


def test_a_slot_that_is_filled_late_is_found():
    usual, late, early = (at_the_broker([50.0], seconds) for seconds in (0.3, 4.5, -0.2))
    just_too_late = at_the_broker([50.0], 2.6)

    assert limits.filled_in_time(usual, ()).passed
    assert limits.filled_in_time(early, ()).count == 1
    assert limits.filled_in_time(just_too_late, ()).count == 1
    assert limits.filled_in_time(late, ()).count == 1
    assert limits.filled_in_time(late, [(51.0, 53.5)]).passed
    assert limits.filled_in_time(late, [(40.0, 49.9)]).count == 1


def test_after_the_session_a_request_comes_too_late_unless_the_broker_was_down():
    late, down = at_the_broker([50.0], 10.5), [(50.0, 60.5)]

    assert limits.filled_in_time(at_the_broker([50.0], 8.0), [(50.0, 58.0)]).passed
    assert limits.filled_in_time(late, down).count == 1
    assert limits.filled_in_time(late, down, [(50.0, 53.0)]).passed
    assert limits.filled_in_time(late, down, [(40.0, 51.0)]).count == 1


def test_the_pacers_patience_is_what_the_checks_say_it_is():
    assert limits.FILL_SECONDS == pacer.PATIENCE_SECONDS
    assert limits.HAND_SECONDS == pacer.FILLING_SECONDS


def test_messages_that_take_long_show_when_the_machine_stood_still():
    sender = Sender(load_settings(), 0)
    for sent_at, known_at in [
        (1.0, 1.2),
        (2.0, 2.6),
        (2.1, 2.2),
        (2.4, 3.4),
        (9.0, 9.6),
        (8.9, 9.5),
    ]:
        sender.note_way(sent_at, known_at)

    assert sender.slow == [(2.0, 3.4), (8.9, 9.6)]


async def test_limits_are_at_the_broker_before_anybody_is_judged_by_them(monkeypatch):
    crowd, sender = make_crowd(200, 1, 60.0), Sender(load_settings(), 0)
    loop, taken = asyncio.get_running_loop(), []

    async def send(topic, _key, value, partition):
        acknowledged = loop.create_future()

        def acknowledge():
            taken.append((topic, decode(HostLimit, value)))
            acknowledged.set_result(SimpleNamespace(offset=len(taken), partition=partition))

        loop.call_later(0.05, acknowledge)
        return acknowledged

    monkeypatch.setattr(sender, "_publisher", SimpleNamespace(send=send))
    Traffic(crowd, sender, 1).limit_hosts()
    assert taken == []

    await sender.send_now()

    assert {limit.host: limit.max_crawls_per_second for _, limit in taken} == crowd.limits
    assert all(topic is HOST_LIMITS for topic, _ in taken)
    assert sender.account.count == len(crowd.limits)
    await sender.send_now()  # There is nothing left.
    assert len(taken) == len(crowd.limits)


async def test_no_worker_starts_before_the_broker_has_the_limits(monkeypatch, tmp_path):
    verification = Verification(VerifyPlan(seconds=1.0, pages=200, keep=tmp_path), print)
    told = []

    def note(what):
        async def noted(*_):
            told.append(what)

        return noted

    monkeypatch.setattr(audit, "install", lambda _: None)
    monkeypatch.setattr(verification, "_import", lambda: None)
    monkeypatch.setattr(type(verification.system), "database_url", "")
    for name in ("start_servers", "wait_until_ready", "start_first_workers"):
        monkeypatch.setattr(verification.system, name, note(name))
    monkeypatch.setattr(verification.system, "copy_database", lambda _: None)
    for name in ("start", "set_budget", "limit_group", "_send"):
        monkeypatch.setattr(verification.sender, name, note(name))

    await verification._start()

    crowd = verification.crowd
    assert told.count("_send") == len(crowd.limits) + len(crowd.open_bounds) > 0
    workers = told.index("start_first_workers")
    assert {"_send", "limit_group", "set_budget"} <= set(told[:workers])
    assert "_send" not in told[workers:]


async def test_a_ramp_is_noted_as_it_was_said_however_busy_the_machine_is(monkeypatch):
    said = []

    async def publish(_, bandwidth):
        said.append(bandwidth)

    monkeypatch.setattr(Sender, "_publish_budget", publish)
    monkeypatch.setattr(sending, "RAMP_STEP_SECONDS", 0.05)
    sender = Sender(load_settings(), 0)
    sender.budget_changes.append((0.0, 10.0))
    asyncio.get_running_loop().call_later(0.02, time.sleep, 0.12)

    await sender.ramp_budget(20.0, 0.2)

    began = said[0].set_at
    steps = [0.0, 0.05, 0.1, 0.15, 0.2]
    assert sender.budget_changes[1:] == [
        (began + step, pytest.approx(rate))
        for step, rate in zip(steps, [12.5, 15.0, 17.5, 20.0, 20.0], strict=True)
    ]


def test_a_check_that_looked_at_nothing_fails_where_something_is_demanded():
    nothing, something = limits.hosts(ledger(), {}), at_the_broker([50.0], 0.3)

    assert nothing.passed
    assert not nothing.demanded().passed
    assert limits.filled_in_time(something, ()).demanded().passed
