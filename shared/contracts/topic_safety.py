"""What must hold of each topic on the broker, and which promise breaks where it does not.

A topic that somebody else made, or altered since, may have any settings. They are compared with
these at every start of a worker, by `freshet topics ensure` and by `freshet doctor`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from shared.contracts import topics
from shared.contracts.topics import Topic

UNLIMITED: Final = -1

CLEANUP: Final = "cleanup.policy"
STAMPS: Final = "message.timestamp.type"
KEPT_MS: Final = "retention.ms"
KEPT_BYTES: Final = "retention.bytes"
UNCOMPACTED_MS: Final = "min.compaction.lag.ms"
UNCLEAN: Final = "unclean.leader.election.enable"
IN_SYNC: Final = "min.insync.replicas"

SURVIVES: Final = "a broker may be lost, and nothing that it has acknowledged is"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A setting of a topic that a promise rests on."""

    setting: str
    """Kafka's name of it."""
    wanted: str
    promise: str
    """In words; it holds only while the setting is as wanted."""
    compare: Literal["equal", "at least"] = "equal"
    """`at least`: a number, of which -1 is no limit."""
    mendable: bool = True
    """Whether the topic can be altered without asking: it costs no disk that nobody planned for."""

    def holds(self, found: str) -> bool:
        """Whether a value that was found will do."""
        if self.compare == "equal":
            return _parts(found) == _parts(self.wanted)
        try:
            value = int(found)
        except ValueError:
            return False
        return value == UNLIMITED or value >= int(self.wanted) != UNLIMITED


def _parts(value: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in value.split(","))


_ALL_READ: Final = "every message is read: compaction drops all but the last one of each key"

_HOWEVER_MANY: Final = "messages are kept for as long as it says, however many come"

_ARRIVAL: Final = {
    topics.SIGNALS.name: "limits and repetitions go by the arrival of a signal, which no producer "
    "may make up",
    topics.DISCOVERIES.name: "a page that a link makes is of the link's arrival, which no producer "
    "may make up: so what an operator does later counts",
    topics.MULTIPLIERS.name: "multipliers that come too late count for nobody: all schedulers see "
    "the same time of each, the broker's",
    topics.CRAWL_REQUESTS.name: "a scheduler that starts finds all requests in flight, whatever "
    "the clocks of those who sent them",
    topics.DEMAND_CURVES.name: "a coordinator that starts knows how old each report is, whatever "
    "the clocks of those who report",
    topics.CLOCK.name: "all workers go by one time, the broker's",
}
"""Topics whose records must carry the broker's time, and why."""

_STANDS: Final = {
    topics.HOST_LIMITS.name: "a host's limit or block stands until it is changed",
    topics.GROUP_LIMITS.name: "the limit of a group of hosts stands until it is changed",
    topics.BANDWIDTH.name: "the budget stands until an operator changes it",
    topics.MULTIPLIERS.name: "the last multipliers stand: a scheduler that starts goes on by them",
}
"""Topics whose last message of a key stands for ever, and what is forgotten where it does not."""

_EACH_RULE: Final = (
    "no rule of a host is lost while schedulers or estimators are away for up to {}: the last "
    "message of a host may be about another rule of it"
)

_KEPT: Final = {
    topics.SIGNALS.name: "no signal is lost while ingesters are away for up to {}",
    topics.PAGE_SIGNALS.name: "no signal is lost while schedulers or estimators are away for up "
    "to {}",
    topics.CRAWL_REQUESTS.name: "no request is lost while the crawlers are away for up to {}, and "
    "a scheduler that starts knows what is in flight",
    topics.CRAWL_OUTCOMES.name: "no outcome is lost while schedulers or estimators are away for up "
    "to {}",
    topics.DISCOVERIES.name: "no link is lost while discoverers are away for up to {}",
    topics.PAGE_UPDATES.name: "no page is lost while schedulers or estimators are away for up to "
    "{}",
    topics.PAGE_PARAMETERS.name: "a scheduler misses nothing that was learned of pages while it is "
    "away for up to {}",
    topics.HOST_PARAMETERS.name: "a scheduler misses nothing that was learned of hosts while it is "
    "away for up to {}",
    topics.DEMAND_CURVES.name: "a coordinator that starts knows which shards report: the reports "
    "of the last {} stand",
    topics.DEAD_LETTERS.name: "messages that could not be taken can be looked at and replayed for "
    "{}",
    topics.CLOCK.name: "the clocks of the last {} can be looked at",
}
"""Topics that are kept for a time, and what rests on it."""


def requirements_of(topic: Topic) -> Iterator[Requirement]:
    """What must hold of a topic of the contract, but for its partitions and replicas."""
    name = topic.name
    if name in _STANDS:
        yield Requirement(CLEANUP, "compact", _STANDS[name])
    if (lag_ms := topic.config.get(UNCOMPACTED_MS)) is not None:
        yield Requirement(
            UNCOMPACTED_MS, lag_ms, _EACH_RULE.format(_in_words(int(lag_ms))), "at least"
        )
    if name in _KEPT:
        kept_ms = topic.config[KEPT_MS]
        promise = _KEPT[name].format(_in_words(int(kept_ms)))
        yield Requirement(CLEANUP, "delete", _ALL_READ)
        yield Requirement(KEPT_MS, kept_ms, promise, "at least")
        # What it may cost of the disk is for people to decide.
        yield Requirement(KEPT_BYTES, str(UNLIMITED), _HOWEVER_MANY, mendable=False)
    if name in _ARRIVAL:
        yield Requirement(STAMPS, "LogAppendTime", _ARRIVAL[name])
    yield Requirement(UNCLEAN, "false", SURVIVES)


def least_in_sync(replicas: int) -> int:
    """`min.insync.replicas` of a topic with so many: one of them may be away, and none is alone.

    With two, either writing stops when one is away, or what is written stands on one disk: it goes
    on.
    """
    return max(1, replicas - 1)


def _in_words(milliseconds: int) -> str:
    minutes = milliseconds / 60_000
    for size, unit in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            count = minutes / size
            return f"{count:g} {unit}" if count == 1 else f"{count:g} {unit}s"
    return f"{milliseconds / 1000:g} seconds"
