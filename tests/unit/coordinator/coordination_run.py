"""A coordination over time, for tests."""

import itertools

from services.coordinator.core import Coordination, Moment
from shared.contracts.messages import Bandwidth, DemandCurve

GRID = [10 ** (k / 8) for k in range(-24, 9)]
START = 1_700_000_000.0


def report(shard, scale=1.0, at=START, **changes):
    values = {
        "shard": shard,
        "instance": "s",
        "reported_at": at,
        "pages": 100,
        "thresholds": GRID,
        "demand": [scale / x**0.5 for x in GRID],
        "ripe": [0.0] * len(GRID),
        "achieved_crawls_per_second": 0.0,
        "host_limited_share": 0.0,
        "marginal_value": 0.0,
    }
    return DemandCurve(**(values | changes))


class Run:
    """A coordination on a clock that the test moves, with shards that report each second."""

    def __init__(self, speed=1.0, origin=START):
        self.speed = speed
        self.origin = origin
        self.wall = 0.0
        self.stepped = 0.0
        self.core = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
        self.core.lead(1, "coordinator-1")
        self.reporting = {}
        self.usable = {}
        """Crawls per clock second that a shard can make at most; absent: all that it is given."""
        self.slots = {}
        """That the shards had in the last step."""
        self.runs = {}
        """Of the schedulers with the shards; absent: they do not say."""
        self._sequence = itertools.count(1)
        self.published = []

    @property
    def moment(self):
        return Moment(
            self.origin + self.speed * self.wall, 1000.0 + self.wall, self.speed, self.stepped
        )

    def step(self, seconds=1.0):
        since = self.moment.clock
        self.wall += seconds
        for shard, scale in self.reporting.items():
            self.hear(self.report(shard, scale, since))
        message = self.core.next(self.moment)
        if message is not None:
            self.core.published(message, self.moment)
            self.published.append(message)
        return message

    def report(self, shard, scale, since):
        """A shard that has used its slots, up to what it can."""
        slots = self.core.timeline.allotted(shard, since, self.moment.clock)
        self.slots[shard] = slots
        most = self.usable.get(shard, slots) * (self.moment.clock - since)
        rate = min(slots, most) / max(self.moment.clock - since, 1e-9)
        said = {"run": self.runs.get(shard, ""), "sequence": next(self._sequence)}
        return report(shard, scale, self.moment.clock, achieved_crawls_per_second=rate, **said)

    def hear(self, message):
        self.core.receive_demand(message, self.moment.wall, self.moment)

    def set_bandwidth(self, rate):
        return self.core.receive_bandwidth(Bandwidth(rate))

    def shares(self):
        return {a.shard: round(a.share, 6) for a in self.published[-1].allotments if a.share}


def running(**options):
    run = Run(**options)
    run.reporting = {0: 1.0, 1: 3.0}
    run.set_bandwidth(2.0)
    run.step()
    return run
