"""What the receiver accepts, the ingester takes; what it refuses, it refuses in the same words."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.ingester.handler import make_sifter
from services.receiver.events import STRUCTURED, read_events
from services.receiver.lines import read_lines
from shared.contracts.codec import encode
from shared.contracts.messages import Signal
from shared.runtime.clock import ManualClock, SystemClock
from shared.runtime.settings import Settings
from shared.runtime.signal_bounds import SignalBounds

NOW = 1_790_000_000.0
HOUR, DAY = 3600.0, 86_400.0
PAGE, OWN = "https://a.example/", "http://localhost/x"
DOCUMENT = Path(__file__).parents[3] / "docs/connect/receiver.md"
CLOCK = SystemClock()


@dataclass
class Record:
    value: bytes
    timestamp: int = int(NOW * 1000)
    headers: tuple[tuple[str, bytes], ...] = ()


def line_read(url, observed_at, settings, clock=CLOCK):
    line = json.dumps({"url": url} | ({} if observed_at is None else {"observed_at": observed_at}))
    return read_lines(line.encode(), SignalBounds.of(settings, clock), NOW)


def event_read(url, observed_at, settings, clock=CLOCK):
    event = {"specversion": "1.0", "id": "1", "source": "/cms", "type": "x", "subject": url}
    if observed_at is not None:
        event["time"] = datetime.fromtimestamp(observed_at, UTC).isoformat()
    body = json.dumps(event).encode()
    return read_events(STRUCTURED, {}, body, SignalBounds.of(settings, clock), NOW)


CASES = [
    (PAGE, None, {}),
    (PAGE, NOW - HOUR, {}),
    (PAGE, NOW + 299.0, {}),
    (PAGE, NOW + HOUR, {}),
    (PAGE, NOW + HOUR, {"signal_future_tolerance_seconds": 7200.0}),
    (PAGE, NOW + 365 * DAY, {}),
    (PAGE, NOW - 30 * DAY, {}),
    (PAGE, NOW - 30 * DAY, {"signal_max_age_days": 31.0}),
    (OWN, None, {}),
    (OWN, None, {"allow_private_hosts": True}),
    ("http://10.0.0.1/", NOW, {}),
]


@pytest.mark.parametrize("read", [line_read, event_read])
@pytest.mark.parametrize(("url", "observed_at", "changed"), CASES)
def test_receiver_and_ingester_say_the_same_of_times_and_hosts(read, url, observed_at, changed):
    settings = Settings(**changed)
    record = Record(encode(Signal(url, "cms", observed_at)))
    sifted = make_sifter(settings, CLOCK).sift([record], NOW)
    found = read(url, observed_at, settings)
    reasons = [reason.partition(": ")[2] for reason in found.reasons]
    assert reasons == [reason for _, reason in sifted.refused]
    assert len(found.pings) == len(sifted.accepted)


@pytest.mark.parametrize("read", [line_read, event_read])
@pytest.mark.parametrize(
    ("url", "observed_at", "reason"),
    [
        (PAGE, NOW + HOUR, "observed 3600 s in the future; at most 300 s are taken: "),
        (PAGE, NOW + 365 * DAY, "observed 31536000 s in the future"),
        (PAGE, NOW - 30 * DAY, "observed 30.0 days ago; at most 7.0 days are taken"),
        (OWN, None, "host 'localhost' is not on the public internet"),
    ],
)
def test_the_sender_hears_why_a_signal_is_not_taken(read, url, observed_at, reason):
    answer = read(url, observed_at, Settings()).answer()
    assert (answer["accepted"], answer["refused"]) == (0, 1)
    assert reason in answer["reasons"][0]


def test_a_simulated_clock_gets_the_slack_that_the_ingester_gives_it():
    fast = ManualClock(NOW, speed=DAY)
    assert line_read(PAGE, NOW + HOUR, Settings(), fast).answer()["accepted"] == 1
    assert line_read(PAGE, NOW + 6 * DAY, Settings(), fast).answer()["refused"] == 1


def test_the_line_of_the_documentation_is_taken_whenever_it_is_sent():
    [line] = re.findall(r"""/signals .*\n  -d '(.*)'$""", DOCUMENT.read_text(), re.MULTILINE)
    bounds = SignalBounds.of(Settings(), CLOCK)
    for now in (NOW, NOW + 3650 * DAY):
        assert read_lines(line.encode(), bounds, now).answer()["accepted"] == 1
