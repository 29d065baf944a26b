"""What the crawler fleet answers: the truth of the web, or the trouble that it was told to have."""

import math

import msgspec
import numpy as np
import pytest

from services.world.events import Changes, RecordedStream, Signals
from services.world.fleet import Fleet
from services.world.pages import make_pages
from services.world.plan import FleetPlan
from services.world.web import Web
from shared.contracts.identity import shard_of
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.runtime.clock import ManualClock
from shared.runtime.publisher import ByPlace
from shared.runtime.settings import load_settings
from shared.units import SECONDS_PER_DAY

ORIGIN = 1_700_000_000.0


class _Publisher:
    def __init__(self) -> None:
        self.settings = load_settings(partitions=4)
        self.queued: list[tuple[str, int, bytes]] = []

    async def queue_batches(self, messages: ByPlace) -> None:
        for (topic, partition), part in messages.items():
            self.queued += [(topic, partition, value) for _, value in part]


@pytest.fixture
def crawl():
    """Lets a fleet crawl requests and returns its answers."""

    async def answers(
        page_ids: list[int] | None = None,
        *,
        day: float = 2.0,
        plan: FleetPlan | None = None,
    ):
        pages = make_pages([f"https://h{i}.example/" for i in range(6)], np.ones(6))
        changes = Changes(np.array([1.0, 1.5]), np.array([0, 0]))
        none = Signals(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
        web = Web(pages.importance, pages.held, RecordedStream(changes, none, []), math.inf)
        publisher = _Publisher()
        fleet = Fleet(
            publisher,
            ManualClock(ORIGIN + day * SECONDS_PER_DAY),
            web,
            pages,
            plan or FleetPlan(latency_seconds=0.0),
            origin=ORIGIN,
            seed=1,
        )
        ids = pages.page_ids.tolist() if page_ids is None else page_ids
        requests = [
            CrawlRequest(
                f"r{n}",
                i,
                f"https://h{n}.example/",
                f"h{n}.example",
                ORIGIN,
                2e9,
                1.0,
                0.5,
                "value",
            )
            for n, i in enumerate(ids)
        ]
        fleet.take(requests, [(shard_of(r.host, 4), r.host.encode()) for r in requests])
        await fleet.turn()
        sent = publisher.queued
        outcomes = [msgspec.json.decode(value, type=CrawlOutcome) for _, _, value in sent]
        assert all(
            partition == shard_of(outcome.host, 4)
            for (_, partition, _), outcome in zip(sent, outcomes, strict=True)
        )
        return {outcome.request_id: outcome for outcome in outcomes}, fleet

    return answers


async def test_the_truth_is_told(crawl) -> None:
    outcomes, _ = await crawl()

    assert len(outcomes) == 6
    assert outcomes["r0"].result == "changed"
    assert {outcomes[f"r{n}"].result for n in range(1, 6)} == {"unchanged"}
    assert outcomes["r0"].crawled_at == ORIGIN + 2 * SECONDS_PER_DAY


async def test_unknown_pages_are_gone(crawl) -> None:
    outcomes, _ = await crawl([12345])

    assert outcomes["r0"].result == "gone"
    assert outcomes["r0"].http_status == 404


async def test_digests_instead_of_results(crawl) -> None:
    plan = FleetPlan(latency_seconds=0.0, digests=True)
    outcomes, _ = await crawl(plan=plan)
    before, _ = await crawl(plan=plan, day=0.5)

    assert outcomes["r0"].result is None
    assert outcomes["r0"].digest != before["r0"].digest
    assert outcomes["r1"].digest == before["r1"].digest


@pytest.mark.parametrize(
    ("plan", "status", "retry"),
    [
        (FleetPlan(latency_seconds=0.0, failed_share=1.0), 503, None),
        (FleetPlan(latency_seconds=0.0, throttled_share=1.0), 429, 600.0),
    ],
)
async def test_trouble_is_told(crawl, plan: FleetPlan, status: int, retry: float | None) -> None:
    outcomes, fleet = await crawl(plan=plan)

    assert {o.result for o in outcomes.values()} == {"failed"}
    assert {o.http_status for o in outcomes.values()} == {status}
    assert {o.retry_after_seconds for o in outcomes.values()} == {retry}
    fleet._web.advance(3.0)
    assert fleet._web.staleness_now() > 0


async def test_hosts_that_do_not_answer_say_nothing_but_that(crawl) -> None:
    outcomes, _ = await crawl(plan=FleetPlan(latency_seconds=0.0, dead_hosts_share=1.0))

    assert {(o.result, o.http_status) for o in outcomes.values()} == {("failed", None)}


async def test_a_wave_of_errors_tells_that_pages_are_gone(crawl) -> None:
    outcomes, _ = await crawl(plan=FleetPlan(latency_seconds=0.0, wave_share=1.0))

    assert {(o.result, o.http_status) for o in outcomes.values()} == {("gone", 404)}


async def test_silent_pages_are_never_answered(crawl) -> None:
    outcomes, fleet = await crawl(plan=FleetPlan(latency_seconds=0.0, silent_share=1.0))

    assert outcomes == {}
    assert fleet._under_way == []


async def test_a_fleet_does_no_more_at_once_than_it_can(crawl) -> None:
    plan = FleetPlan(latency_seconds=0.0, crawls_per_second=10.0)
    outcomes, fleet = await crawl(plan=plan)

    assert len(outcomes) <= 2
    waits = sorted(crawls.ready_at for crawls in fleet._under_way)
    assert np.diff(waits) == pytest.approx(0.1, abs=0.03)
