"""What passes the ingester, and why the rest does not."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingester.debounce import Debouncer
from services.ingester.handler import make_sifter
from services.ingester.sifting import LANES, UNNAMED, Sifter, SignalRules
from services.ingester.sources import SourceLimiter
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import PageSignal, Signal
from shared.runtime.clock import ManualClock, SystemClock
from shared.runtime.settings import Settings
from shared.runtime.signal_bounds import SignalBounds

NOW = 1_700_000_000.0
DAY = 86_400.0


@dataclass
class Record:
    value: bytes | None
    timestamp: int = int(NOW * 1000)
    headers: tuple[tuple[str, bytes | None], ...] = ()


def make(**changes):
    bounds = {
        "future_tolerance_seconds": 300.0,
        "max_age_seconds": 7 * DAY,
        "allow_private_hosts": False,
    } | {k: v for k, v in changes.items() if k in SignalBounds.__dataclass_fields__}
    rules = {"bounds": SignalBounds(**bounds), "record_times_count": True} | {
        k: v for k, v in changes.items() if k in SignalRules.__dataclass_fields__
    }
    limiter = SourceLimiter(
        changes.get("per_second", 1000.0),
        named=changes.get("named_sources", ()),
        others_per_second=changes.get("others_per_second", 1e9),
    )
    return Sifter(SignalRules(**rules), limiter, Debouncer(changes.get("window", 60.0), 1 << 10))


def sift_one(value, sifter=None, **record):
    return (sifter or make()).sift([Record(value, **record)], NOW)


def test_a_signal_becomes_a_page_signal_under_its_canonical_name():
    sifted = sift_one(encode(Signal("HTTP://Example.COM:80/a/../b?q#top", "cms", NOW - 5)))
    page = identify("http://example.com/b?q")
    assert sifted.accepted == [PageSignal(page.page_id, page.url, "example.com", "cms", NOW - 5)]
    assert sifted.refused == []


@pytest.mark.parametrize(
    ("timestamp", "record_times_count", "observed_at"),
    [
        (int((NOW - 7) * 1000), True, NOW - 7),
        (int((NOW - 7) * 1000), False, NOW),
        (-1, True, NOW),
        (int((NOW + 60) * 1000), True, NOW),
    ],
)
def test_without_a_time_the_arrival_counts(timestamp, record_times_count, observed_at):
    sifter = make(record_times_count=record_times_count)
    sifted = sift_one(encode(Signal("https://a.example/", "x")), sifter, timestamp=timestamp)
    assert [s.observed_at for s in sifted.accepted] == [observed_at]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "not a valid Signal"),
        (b"\xff\xfe", "not a valid Signal"),
        (b"{}", "url"),
        (b'{"url":"https://a.example/","source":1}', "source"),
        (b'{"url":"https://a.example/","source":""}', "source"),
        (b'{"url":"https://a.example/","source":"x","observed_at":Infinity}', "JSON"),
        (b'{"url":"https://a.example/","source":"x","observed_at":-1}', "observed_at"),
        (encode(Signal("https://a.example/", "a\x00b", NOW)), "control"),
        (encode(Signal("https://a.example/", "x", NOW + 301)), "in the future"),
        (b'{"url":"https://a.example/","source":"x","observed_at":1.7e12}', "observed_at"),
        (encode(Signal("https://a.example/", "x", NOW - 8 * DAY)), "8.0 days ago"),
        (encode(Signal("gopher://a.example/", "x", NOW)), "only http and https"),
        (encode(Signal("/relative", "x", NOW)), "absolute URL"),
        (encode(Signal("https://me:secret@a.example/", "x", NOW)), "credentials"),
        (encode(Signal("https://a.example/\n", "x", NOW)), "control"),
        (encode(Signal("http://localhost:8080/", "x", NOW)), "ALLOW_PRIVATE_HOSTS"),
        (encode(Signal("http://0x7f.1/", "x", NOW)), "ALLOW_PRIVATE_HOSTS"),
        (encode(Signal("http://[::ffff:10.0.0.1]/", "x", NOW)), "ALLOW_PRIVATE_HOSTS"),
        (b'{"url":"https://a.example/' + b"a" * 3000 + b'","source":"x"}', "length <= 2048"),
        (b'{"url":"https://a.example/' + b"a" * 1_000_000 + b'","source":"x"}', "at most 65536"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(value, reason):
    sifted = sift_one(value)
    assert sifted.accepted == []
    assert [index for index, _ in sifted.refused] == [0]
    assert reason in sifted.refused[0][1]
    assert "secret" not in sifted.refused[0][1]


def test_private_hosts_pass_where_they_are_allowed():
    value = encode(Signal("http://10.0.0.1/", "x", NOW))
    assert len(sift_one(value, make(allow_private_hosts=True)).accepted) == 1


def test_repetitions_are_counted_by_source_and_page_across_batches():
    sifter = make()
    values = [
        Signal("https://a.example/", "x", NOW),
        Signal("https://a.example/#part", "x", NOW + 1),
        Signal("https://a.example/", "z", NOW),
        Signal("https://a.example/b", "x", NOW),
    ]
    sifted = sifter.sift([Record(encode(v)) for v in values], NOW)
    assert len(sifted.accepted) == 3
    assert sifted.repeated == 1
    assert sift_one(encode(values[0]), sifter).repeated == 1


def test_where_none_is_named_no_source_silences_another():
    others = [Signal("https://a.example/", f"noise-{i}", NOW) for i in range(50)]
    late = Signal("https://a.example/", "cms", NOW - 20)
    sifted = make().sift([Record(encode(s)) for s in [*others, late, late, *others]], NOW)
    assert [s.observed_at for s in sifted.accepted if s.source == "cms"] == [NOW - 20]
    assert (len(sifted.accepted), sifted.repeated) == (51, 51)


def test_where_some_are_named_made_up_sources_raise_no_page_faster_than_a_few():
    signals = [Signal("https://a.example/", f"made-up-{i}", NOW) for i in range(1000)]
    named = make(named_sources=frozenset({"cms"}))
    signals.append(Signal("https://a.example/", "cms", NOW))
    sifted = named.sift([Record(encode(s)) for s in signals], NOW)
    assert [s.source for s in sifted.accepted] == [UNNAMED] * LANES + ["cms"]


def test_how_late_signals_are_is_known_of_named_sources_and_of_all_others_together():
    sifter = make(named_sources=frozenset({"cms"}))
    url, arrived = "https://a.example/", int((NOW - 5) * 1000)
    said = [("cms", NOW - 65), ("cms", None), ("cms", NOW), ("x", NOW - 25), ("y", NOW - 15)]
    records = [Record(encode(Signal(url, *one)), timestamp=arrived) for one in said]
    assert sifter.sift(records, NOW).delays == {"cms": [60.0, 0.0], UNNAMED: [20.0, 10.0]}
    # What is refused says nothing.
    bad = Record(encode(Signal("https://10.0.0.1/", "cms", NOW - 65)))
    assert sifter.sift([bad], NOW).delays == {}


def test_nobody_mutes_a_source_that_is_named():
    sifter = make(named_sources=frozenset({"sitemap"}))
    pings = [Signal("https://a.example/", f"anybody-{i}", NOW) for i in range(50)]
    late = Signal("https://a.example/", "sitemap", NOW - 3600)
    sifted = sifter.sift([Record(encode(s)) for s in [*pings, late, late, *pings]], NOW)
    assert [s.observed_at for s in sifted.accepted if s.source == "sitemap"] == [NOW - 3600]


def test_observations_that_are_said_to_lie_apart_but_come_at_once_are_one():
    signals = [Signal("https://a.example/", "x", NOW - 100 * i) for i in range(1000, 0, -1)]
    records = [Record(encode(s)) for s in signals]
    assert len(make().sift(records, NOW).accepted) == 1
    simulated = make(record_times_count=False, max_age_seconds=1e6)
    assert len(simulated.sift(records, NOW).accepted) == 1000


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ((), False),
        ((("source-key", b"wrong"),), False),
        ((("source-key", None),), False),
        ((("other", b"s3cret"),), False),
        ((("other", b"x"), ("source-key", b"s3cret")), True),
    ],
)
def test_a_source_with_a_key_must_show_it(headers, passes):
    sifter = make(source_keys={"cms": b"s3cret"})
    sifted = sift_one(encode(Signal("https://a.example/", "cms", NOW)), sifter, headers=headers)
    assert len(sifted.accepted) == passes
    for _, reason in sifted.refused:
        assert "FRESHET_SIGNAL_SOURCE_KEYS" in reason
        assert "s3cret" not in reason
    assert len(sift_one(encode(Signal("https://a.example/b", "other", NOW)), sifter).accepted) == 1


@pytest.mark.parametrize("headers", [(), (("source-key", b""),), (("source-key", None),)])
def test_an_empty_key_proves_nothing(headers):
    sifter = make(source_keys={"cms": b""})
    sifted = sift_one(encode(Signal("https://a.example/", "cms", NOW)), sifter, headers=headers)
    assert not sifted.accepted
    assert len(sifted.refused) == 1


def test_nobody_observes_after_the_arrival():
    sifted = sift_one(encode(Signal("https://a.example/", "x", NOW + 250)))
    assert [s.observed_at for s in sifted.accepted] == [NOW]


def test_a_flood_is_dropped_and_reported_once():
    records = [Record(encode(Signal(f"https://a.example/{i}", "x", NOW))) for i in range(50)]
    sifted = make(per_second=1.0).sift(records, NOW)
    assert len(sifted.accepted) == 10
    assert sifted.over_limit == 40
    assert [index for index, _ in sifted.refused] == [10]
    assert "FRESHET_SIGNALS_PER_SOURCE_PER_SECOND" in sifted.refused[0][1]


def test_a_backlog_is_not_held_against_its_source():
    records = [
        Record(encode(Signal(f"https://a.example/{i}", "x")), int((NOW - 1000 + i) * 1000))
        for i in range(1000)
    ]
    assert len(make(per_second=1.0).sift(records, NOW).accepted) == 1000


def test_a_simulated_clock_gets_slack_for_processes_that_disagree():
    settings_ = Settings(signal_future_tolerance_seconds=10.0)
    late = [Record(encode(Signal("https://a.example/", "x", NOW + 100)))]
    assert make_sifter(settings_, SystemClock()).sift(late, NOW).accepted == []
    fast = ManualClock(NOW, speed=86_400.0)
    assert len(make_sifter(settings_, fast).sift(late, NOW).accepted) == 1


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            lambda url, source, at: encode({"url": url, "source": source, "observed_at": at}),
            st.text(max_size=60) | st.text(max_size=60).map(lambda t: f"https://{t}"),
            st.text(max_size=10),
            st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
        ),
    )
)
def test_anything_at_all_passes_or_is_refused(value):
    sifted = sift_one(value)
    assert len(sifted.accepted) + len(sifted.refused) == 1
