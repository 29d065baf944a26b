"""What the numbers of partitions say: as configured, grown, growing, or a mistake."""

from unittest import mock

import pytest

from shared.runtime import partition_counts
from shared.runtime.partition_counts import TopicMismatch, check_shards, growth_of


def topics(*counts):
    return {f"topic-{number}": count for number, count in enumerate(counts)}


@pytest.mark.parametrize(
    ("counts", "wanted", "shards", "is_over"),
    [
        ((), 8, 8, True),
        ((8, 8), 8, 8, True),
        ((32, 32), 8, 32, True),  # a process that goes by the number of before
        ((8, 8), 32, 32, False),  # a worker that knows what the database is prepared for
        ((32, 8), 32, 32, False),
        ((8, 32), 8, 32, False),
        ((16, 32), 8, 32, False),  # the second growth, and a setting from before the first
    ],
)
def test_a_growth_explains_them(counts, wanted, shards, is_over):
    assert growth_of(topics(*counts), wanted) == (shards, is_over)


@pytest.mark.parametrize(
    ("counts", "wanted", "named"),
    [
        ((9,), 8, "topic-0 has 9 partitions"),
        ((8, 12), 8, "topic-1 has 12 partitions"),
        ((3, 3), 8, "topic-0 has 3 partitions"),
        ((8, 16, 32), 8, "topic-1 has 16 partitions"),
        ((8, 64), 32, "topic-0 has 8 partitions"),
        ((1, 1), 8, "topic-0 has 1 partitions"),  # the broker has made them by itself
        ((32, 0), 8, "topic-0 has 32 partitions"),
        ((0,), 8, "topic-0 has 0 partitions"),
    ],
)
def test_nothing_explains_them(counts, wanted, named):
    with pytest.raises(TopicMismatch, match=f"{named} .* say {wanted}: set FRESHET_PARTITIONS"):
        growth_of(topics(*counts), wanted)


def test_only_what_is_out_of_the_ordinary_is_said(monkeypatch):
    said = mock.Mock()
    monkeypatch.setattr(partition_counts, "log", said)
    assert check_shards(topics(8, 8), 8) == 8
    assert said.mock_calls == []
    assert check_shards(topics(8, 8), 32) == 32
    assert said.warning.call_args.kwargs["goes_on_with"] == "freshet shards grow 32"
