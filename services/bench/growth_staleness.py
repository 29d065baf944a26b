"""Staleness of the days after a growth of the number of shards, beside that without one.

A trace is replayed through the learning and picking of production. On a day in the middle what is
known of pages and hosts is written to PostgreSQL as an estimator writes it, the shard is split
there as by `freshet shards grow`, and the replay goes on with what schedulers and estimators load.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.real_system import scratch_folder
from services.bench.replayed_growth import SplitEstimators, SplitShards, shards_of_pages
from services.estimator.application import ShardEffects
from services.estimator.commits import Commit
from services.estimator.persistence import Store
from services.estimator.shard import Shard
from services.replay import columns as state
from services.replay.books import settle
from services.replay.by_calendar import CalendarRun, HandOver, Learner, Picker
from services.replay.generated import make_trace
from services.replay.selecting import Rules
from services.replay.slots import Budget
from services.replay.trace import Trace
from services.replay.values import EXACT
from services.replay.virtual_estimator import VirtualEstimator, url_of
from services.replay.virtual_shard import VirtualShard
from services.scheduler.flow.loading import build_shard
from shared.policy.model import PageParameters
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.growth import begin_growth, split_shard
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.splits import ask, hold
from shared.units import SECONDS_PER_DAY

PAGES_OF_A_HOST: Final = 25
PAGES_A_CRAWL: Final = 10
"""So many pages to a crawl a day: as scarce as in the published experiments."""

_ASKED_SECONDS: Final = 3600.0

Integers = NDArray[np.int64]


def run(pages: int = 2_000, seed: int = 0, factor: int = 4, days: float = 80.0) -> dict[str, Any]:
    """Replay generated pages without a growth, and with one in the middle.

    Args:
        pages: of hosts of some dozen each, whose pages change alike.
        seed: of the pages.
        factor: so many shards come of one.
        days: of the trace; the second half of them counts.

    Returns:
        the staleness without a growth; after one where one estimator still has all shards, and
        where each has one, and so fits what hosts have in common by itself; and their ratios.
    """
    trace = hosts_alike(pages, days, seed)
    budget = Budget.constant(pages / PAGES_A_CRAWL)
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        try:
            return compare(trace, budget, days / 2, factor, postgres.create_database)
        finally:
            postgres.stop()


def compare(
    trace: Trace, budget: Budget, day: float, factor: int, database: Callable[[str], str]
) -> dict[str, Any]:
    """Replay a trace without a growth, and with one on a day.

    Args:
        trace: what happens.
        budget: slots.
        day: of the growth; what comes after it counts.
        factor: so many shards come of one.
        database: makes an empty one of a name; its libpq URL.

    Returns:
        see `run`.
    """
    slots = budget.slot_times(trace.days)
    judged = replace(trace, judged_from=day)
    still = _replay(trace, slots, day, lambda picker, learner: (picker, learner))
    of_page = shards_of_pages(trace, factor)
    turns = np.where(still >= 0, of_page[still], -1)
    answer: dict[str, Any] = {
        "pages": len(trace),
        "hosts": len(trace.host_names),
        "shards": factor,
        "crawls_after": int((still[slots > day] >= 0).sum()),
        "staleness": settle(judged, slots, still).staleness,
    }
    for name, together in (("one_estimator", True), ("an_estimator_each", False)):
        url = database(f"grown_{name}")

        def hand_over(
            picker: Picker, learner: Learner, url: str = url, together: bool = together
        ) -> tuple[Picker, Learner]:
            if not isinstance(picker, VirtualShard) or not isinstance(learner, VirtualEstimator):
                raise TypeError("there is one shard before a growth")
            write(learner.shard, trace, url)
            grow(url, factor)
            schedulers, estimators = load(url, trace, factor, picker, day)
            return (
                SplitShards(schedulers, of_page, slots, turns),
                SplitEstimators(estimators, of_page, together=together),
            )

        grown = _replay(trace, slots, day, hand_over)
        staleness = settle(judged, slots, grown).staleness
        answer |= {
            f"staleness_{name}": staleness,
            f"ratio_{name}": staleness / answer["staleness"],
            f"same_picks_{name}": float((grown == still)[slots > day].mean()),
        }
    return answer


def hosts_alike(pages: int, days: float, seed: int) -> Trace:
    """Pages of hosts: how often those of one change is about the same, and how well it is told."""
    rng = np.random.default_rng(seed)
    count = max(pages // PAGES_OF_A_HOST, 2)
    host = rng.integers(0, count, pages)
    rate = np.exp(rng.normal(np.log(0.2), 1.0, count))[host] * rng.gamma(4.0, 0.25, pages)
    recall = np.where(rng.random(count) < 0.5, 0.0, rng.beta(4.0, 2.0, count))[host]
    noise = np.where(recall > 0.0, 0.1 * rate, 0.0)
    parameters = PageParameters.from_rates(rng.random(pages), rate, recall, noise)
    trace = make_trace(parameters, days, rng)
    names = tuple(f"host-{number}.example" for number in range(count))
    return replace(
        trace,
        host=host,
        site=np.arange(count),
        host_names=names,
        host_limit=np.full(count, np.inf),
        urls=tuple(f"https://{names[host[page]]}/{page}" for page in range(pages)),
    )


def write(shard: Shard, trace: Trace, database_url: str) -> None:
    """Write all that an estimator knows of a shard to an empty database."""
    migrate(database_url, 1)
    pages, hosts = shard.pages["page_id"], shard.hosts.records["host_id"]
    added, known = np.argsort(pages), np.argsort(hosts[: len(shard.hosts.names)])
    done = replace(
        ShardEffects.nothing(shard),
        added=added,
        added_urls=[url_of(trace, page) for page in pages[added].tolist()],
        hosts=known.tolist(),
        counted_hosts=known,
        factored=known[np.isin(known, list(shard.hosts.factors))],
    )
    store = Store(load_settings(database_url=database_url, partitions=1, instance="replay"))
    store.open()
    try:
        owned = {shard.number: store.own(shard.number)}
        store.commit(Commit([done], owned, {}, {}, {}, time.time(), hurried=False))
    finally:
        store.close()


def grow(database_url: str, factor: int) -> None:
    """Split the only shard, which nobody picks from."""
    layout = begin_growth(database_url, factor)
    with connect(database_url, "replay", autocommit=True) as connection:
        ask(connection, 0, _ASKED_SECONDS)
        hold(connection, 0)
        split_shard(connection, layout, 0, "replay")


def load(
    database_url: str, trace: Trace, factor: int, before: VirtualShard, day: float
) -> tuple[list[VirtualShard], list[VirtualEstimator]]:
    """The shards that came of a growth, as schedulers and as estimators load them."""
    schedulers, estimators = [], []
    for number in range(factor):
        scheduler = VirtualShard(trace, before.rules.signal_delay / SECONDS_PER_DAY)
        scheduler.take(build_shard(load_shard(database_url, number), before.rules))
        scheduler.shard.filled_until = day * SECONDS_PER_DAY
        scheduler.shard.prepare(day * SECONDS_PER_DAY)
        schedulers.append(scheduler)
        estimator = VirtualEstimator(trace, before.rules.signal_delay / SECONDS_PER_DAY)
        estimator.shard = Shard.load(load_for_learning(database_url, number))
        estimators.append(estimator)
    return schedulers, estimators


def _replay(trace: Trace, slots: NDArray[np.float64], day: float, hand_over: HandOver) -> Integers:
    """The page of each slot, or −1."""
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    rules = Rules(EXACT, 0.0, state.PRODUCTION, True, 0.0)
    events = trace.merged_events(state.source_slots(trace))
    estimator = VirtualEstimator(trace, rules.signal_delay_days)
    replay = CalendarRun(trace, columns, hosts, rules, slots, events, estimator)
    crawled = np.full(slots.size, -1, np.int64)
    cut = int(np.searchsorted(slots, day, "right"))
    replay.fill(0, cut, crawled[:cut])
    replay.hand_over(day, hand_over)
    replay.fill(cut, slots.size, crawled[cut:])
    return crawled
