"""What a shard does before it is picked from, so that no first tick waits for it."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules

NOW = 1.7e9
PAGES = 200


@pytest.mark.parametrize("is_prepared", [True, False])
def test_room_for_signals_is_made_before_the_first_ones_and_changes_nothing(is_prepared):
    world = World(rules())
    for number in range(PAGES):
        world.add_page("h", number, NOW - DAY, kappa=1.0, gamma=1.0, last_crawled_at=NOW - DAY)
    shard = world.shard
    # Loaded pages have signals of before, which is all that is known of their batches.
    rows = np.arange(PAGES, dtype=np.int32)
    shard.signal_times.note(rows, np.zeros(PAGES, np.int8), np.full(PAGES, NOW - 2 * DAY))
    if is_prepared:
        shard.prepare(NOW)
        assert shard.batches.arrays(0).waiting.batches.size >= PAGES
        assert shard.selector.rebuilds == 1
    signalled = shard.page_ids_of(np.arange(0, PAGES, 2))
    shard.signals(signalled, np.full(signalled.size, NOW - 60.0), ["ping"] * signalled.size)
    assert (shard.pages["signals"][:PAGES:2] > 0.0).all()
    assert (shard.pages["signals"][1:PAGES:2] == 0.0).all()
