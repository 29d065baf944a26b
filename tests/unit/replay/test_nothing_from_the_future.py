"""What is replayed up to a day does not depend on what comes after it."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import paper_trace

from services.replay.policies import POLICIES, is_online, replay_policy
from services.replay.slots import Budget
from services.replay.trace import Trace

DAYS = 24.0
CUTS = (3.0, 11.37, 20.0)
BUDGET = Budget(((0.0, 9.0), (7.0, 4.0), (14.0, 13.0)))

ONLINE = [name for name in POLICIES if is_online(name)]


def web() -> Trace:
    """Hosts, one of them limited; pages born on the way; three sources of signals."""
    trace = paper_trace(pages=50, days=DAYS, seed=7, recall=(2.0, 1.0))
    rng = np.random.default_rng(8)
    born = np.where(rng.random(50) < 0.2, rng.random(50) * DAYS, 0.0)
    return replace(
        trace,
        host=rng.integers(0, 4, 50),
        site=np.arange(4) % 2,
        host_names=tuple(f"h{number}.example" for number in range(4)),
        host_limit=np.array([1.5, np.inf, np.inf, np.inf]),
        born_days=born,
        held=born == 0.0,
        signal_sources=rng.integers(0, 3, trace.signal_days.size),
        known=None,
    )


@pytest.mark.parametrize("name", ONLINE)
def test_a_trace_that_is_cut_gives_the_beginning_of_the_whole(name: str) -> None:
    trace = web()
    whole = replay_policy(trace, BUDGET, name).crawled
    for day in CUTS:
        cut = replay_policy(trace.until(day), BUDGET, name).crawled
        assert 0 < cut.size < whole.size
        assert cut.tolist() == whole[: cut.size].tolist(), f"cut at day {day}"


def test_another_future_changes_nothing_either() -> None:
    trace = web()
    day = 12.0
    later = trace.change_days > day
    pages = np.where(later, (trace.change_pages + 17) % 50, trace.change_pages)
    other = replace(trace, change_pages=pages)
    before = BUDGET.slot_times(day).size
    one, two = (replay_policy(t, BUDGET, "freshet").crawled for t in (trace, other))
    assert one[:before].tolist() == two[:before].tolist()
    assert one.tolist() != two.tolist()


def test_the_production_policies_claim_it_and_oracles_do_not() -> None:
    assert {"freshet", "freshet-harmonic", "freshet-no-signals", "GREEDY-NCIS", "nutch"} <= set(
        ONLINE
    )
    assert not {"LC", "LDS", "LLC", "nutch-tuned"} & set(ONLINE)
