"""Messages that nobody should send: JSON of the right shape with anything in its fields."""

import json
from functools import cache

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

URLS = st.one_of(
    st.sampled_from(
        ["https://a.example/", "http://[::1]/", "http://0x7f.1/", "https://b.example./"]
    ),
    st.text(max_size=20).map(lambda t: f"https://a.example/{t}"),
    st.text(min_size=1, max_size=20),
)
NUMBERS = st.one_of(
    st.integers(-5, 70),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e300, 1e11, 1.7e9, 2**62, 2**63 - 1, 2**63]),
)
WORD = st.text("abcxyz.é-☃", min_size=1, max_size=8)
GRID = st.sampled_from([[0.001, 0.01, 0.1, 1.0], [0.0] * 4, [1e12, 1e-12, 0.0, 0.0], [], [1.0]])
ALLOTMENTS = st.lists(
    st.fixed_dictionaries({"shard": st.integers(0, 32767), "share": st.floats(0, 1)}), max_size=5
)
ANYTHING = st.one_of(
    URLS, NUMBERS, st.lists(NUMBERS, max_size=6), st.none(), st.booleans(), st.text(max_size=5)
)
EXTREMES = st.floats(0, 70) | st.sampled_from([0, 1, 5e-324, 1e-12, 1000, 1e6, 1e9])
COUNTS = st.integers(0, 70) | st.sampled_from([2**31, 2**53 + 1, 2**61])

PLAUSIBLE = {
    **dict.fromkeys(("why", "cause", "leader", "source", "instance", "digest"), WORD),
    **dict.fromkeys(("version", "epoch", "pages", "page_id"), COUNTS),
    **dict.fromkeys(("thresholds", "demand", "ripe"), GRID),
    **dict.fromkeys(
        ("reported_at", "effective_at", "computed_at", "updated_at", "crawled_at", "observed_at"),
        st.sampled_from([0, 1e9, 1.7e9 - 5, 1.7e9, 1.7e9 + 100, 1e11]),
    ),
    "url": URLS,
    "host": st.sampled_from(["a.example", "b.example", "[::1]", "x" * 300]) | WORD,
    "shard": st.integers(0, 80),
    "op": st.sampled_from(["upsert", "remove"]),
    "result": st.sampled_from(["changed", "unchanged", "gone", "failed"]),
    "reason": st.sampled_from(["value", "new", "max-age", "retry", "urgent"]),
    "http_status": st.integers(0, 999),
    "request_id": WORD | st.sampled_from(["2a-1f-5f5e100", "-", "g-g", "0-0-0", "f" * 64]),
    "allotments": ALLOTMENTS,
    "crawls_per_second": st.sampled_from([0.0, 1e-300, 1e6]) | st.floats(0, 1e3),
    "host_limited_share": st.floats(0, 1),
    "first_slot": EXTREMES | st.sampled_from([1e18, 1e19, 1e300]),
    "multiplier": EXTREMES | st.just(1e300),
    "ramp_to": st.floats(0, 1e6) | st.none(),
    "ramp_seconds": st.sampled_from([0.0, 5e-324, 1.0, 1e9]),
    "schedule": st.just([]),
    "timezone": st.sampled_from(["UTC", "../../etc/passwd", "No/Where", ""]),
    "sources": st.lists(WORD, max_size=3),
    "source_evidence": st.lists(st.floats(5e-324, 1e308), min_size=4, max_size=4),
    "burst_multipliers": st.lists(st.floats(5e-324, 1000), min_size=6, max_size=6),
    "importance": EXTREMES | st.just(1e12),
    "signal_evidence": EXTREMES | st.sampled_from([1e300, 5e-324]),
    "max_age_days": st.sampled_from([5e-324, 1e-9, 1.0, 1e6]),
}


@cache
def hostile(kind: type[Struct]) -> st.SearchStrategy[bytes]:
    """Bytes on a topic that carries a kind of message: often taken, and never what is expected."""
    plausible = {field.encode_name: PLAUSIBLE.get(field.name, EXTREMES) for field in fields(kind)}
    required = {field.encode_name for field in fields(kind) if field.required}
    tame = st.fixed_dictionaries(
        {name: value for name, value in plausible.items() if name in required},
        optional={name: value for name, value in plausible.items() if name not in required},
    ).map(_json)
    wild = st.fixed_dictionaries({}, optional=dict.fromkeys(plausible, ANYTHING)).map(_json)
    cut = tame.map(lambda data: data[:-3])
    rubbish = wild | cut | st.binary(max_size=40) | st.just(b"[" * 5000)
    return st.integers(0, 3).flatmap(lambda number: rubbish if number == 3 else tame)


def _json(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")
