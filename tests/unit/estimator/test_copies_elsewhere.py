"""What an update says of a copy that somebody else has crawled."""

import pytest
from one_page import DAY, one_page, play, update

from services.estimator import effects
from services.estimator.columns import UPSERT
from shared.rules.page_events import CHANGED, COMPARE, SIGNAL


@pytest.mark.parametrize(("delay", "waiting"), [(0.0, [1, 0]), (2.0 * DAY, [0, 0])])
def test_signals_from_before_a_copy_wait_for_nothing(delay, waiting):
    shard = one_page()
    play(shard, (DAY, CHANGED), *((DAY * n, SIGNAL, 0, 1) for n in (4, 5, 6)))
    play(shard, *((DAY * n, SIGNAL) for n in (5, 6, 8)))
    assert shard.rings.pending[0][:2].tolist() == [3, 3]
    assert update(shard, 9 * DAY, UPSERT, crawled_at=7 * DAY, delay=delay) == effects.APPLIED
    assert shard.rings.pending[0][:2].tolist() == waiting
    assert shard.pages["signals"][0] == sum(waiting)
    # All of them were counted; an older copy changes nothing.
    assert shard.rings.totals[0][:2].tolist() == [3, 3]
    update(shard, 10 * DAY, UPSERT, crawled_at=3 * DAY, delay=delay)
    assert shard.rings.pending[0][:2].tolist() == waiting


def test_after_a_copy_there_is_no_digest_to_compare_with():
    shard = one_page()
    play(shard, (DAY, COMPARE, 7), (2 * DAY, COMPARE, 7))
    update(shard, 4 * DAY, UPSERT, crawled_at=3 * DAY)
    # Whether it changed before the copy was made or since, nobody knows.
    verdicts = play(shard, (4 * DAY, COMPARE, 8), (5 * DAY, COMPARE, 8)).verdicts
    assert verdicts.tolist() == [effects.APPLIED, effects.OBSERVED]
    assert (shard.pages["crawls"][0], shard.pages["changes"][0]) == (4, 0)
    # Who compares with the copy itself may say.
    update(shard, 7 * DAY, UPSERT, crawled_at=6 * DAY)
    assert play(shard, (8 * DAY, CHANGED)).verdicts.tolist() == [effects.OBSERVED]
