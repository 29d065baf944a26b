"""A host's own guard comes down: what waits for it comes back no later than it is worth a crawl."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules
from test_shard_selection import START


@pytest.mark.parametrize(("seed", "low"), [(0, 0.05), (1, 0.3), (2, 0.05)])
def test_pages_of_a_pen_come_back_in_time_once_their_host_has_no_guard_of_its_own(seed, low):
    rng = np.random.default_rng(seed)
    world = World(rules(host_rate=1000.0, timeout=1e6))
    for host, pages in (("busy", 200), ("other", 40)):
        for number in range(pages):
            world.add_page(
                host,
                number,
                START - DAY,
                importance=float(rng.lognormal(0, 1)),
                alpha=float(rng.lognormal(5, 1)),
                last_crawled_at=START - float(rng.exponential(600.0)),
            )
    now = START
    for rate in (low, 1000.0, low, 1000.0):
        world.limit_host("busy.example", rate, None, now)
        for _ in range(60):
            picked = world.pick(now + np.arange(1, 6) / 2.0, 2.0)
            now += 2.5
            for page_id in picked:
                if page_id is not None:
                    world.outcome(page_id, now)
