"""Topics as they are on the broker, compared with what the promises rest on, and mended."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from shared.contracts.topic_safety import (
    IN_SYNC,
    SURVIVES,
    Requirement,
    least_in_sync,
    requirements_of,
)
from shared.contracts.topics import Topic
from shared.runtime.findings import Finding, gathered
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

_SET_ON_TOPIC: Final = 1
"""Kafka's number for a setting that the topic itself has."""

_SAFE_REPLICAS: Final = 3
"""With so many one may be away, and what is written meanwhile still stands on two."""

_LOOKS: Final = 50
_LOOK_SECONDS: Final = 0.1
"""A broker tells of an altered topic a moment later."""

FIX: Final = "freshet topics ensure --fix"


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic as it is."""

    name: str
    """On the broker."""
    partitions: int
    replicas: int
    """Of the partition that has the fewest."""
    in_sync: int
    """Replicas that are up to date, of the partition that has the fewest."""
    leaderless: int
    """Partitions that nobody serves now."""
    config: Mapping[str, str]
    """All settings; empty where they may not be read."""
    own: Mapping[str, str]
    """Those that were set for this topic alone."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that `mend` may alter."""

    topic: str
    """On the broker."""
    setting: str
    value: str


async def look_at_topics(admin: AIOKafkaAdminClient, names: Sequence[str]) -> list[TopicState]:
    """How topics are now; those that are not there are left out.

    Args:
        admin: a started client.
        names: on the broker.

    Raises:
        KafkaError: the broker does not answer.
    """
    if not names:
        return []
    described = {item["topic"]: item for item in await admin.describe_topics(list(names))}
    configs = await _configs(admin, names)
    return [
        _state(name, described[name]["partitions"], *configs.get(name, ({}, {})))
        for name in names
        if name in described and described[name]["partitions"]
    ]


def _state(
    name: str,
    partitions: Sequence[Mapping[str, Any]],
    config: Mapping[str, str],
    own: Mapping[str, str],
) -> TopicState:
    return TopicState(
        name,
        partitions=len(partitions),
        replicas=min(len(part["replicas"]) for part in partitions),
        in_sync=min(len(part["isr"]) for part in partitions),
        leaderless=sum(part["leader"] < 0 for part in partitions),
        config=config,
        own=own,
    )


async def _configs(
    admin: AIOKafkaAdminClient, names: Iterable[str]
) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """Topic → all its settings, and its own ones. Topics that may not be looked at are left out."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    try:
        answers = await admin.describe_configs(resources)
    except IncompatibleBrokerVersion:
        return {}
    found = {}
    for answer in answers:
        for code, _message, _kind, name, entries in answer.resources:
            if code == 0:
                everything = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
                own = {e[0]: e[1] for e in entries if e[0] in everything and _is_own(answer, e)}
                found[name] = (everything, own)
    return found


def _is_own(answer: Any, entry: tuple[Any, ...]) -> bool:
    """Whether a setting was set for its topic; answers of version 0 say only "is a default"."""
    return bool(entry[3] == _SET_ON_TOPIC if answer.API_VERSION else not entry[3])


async def check_topics(
    admin: AIOKafkaAdminClient, settings: Settings, topics: Iterable[Topic], *, fix: bool = False
) -> list[Finding]:
    """What does not hold of topics that are there.

    Args:
        admin: a started client.
        settings: of this installation.
        topics: of the contract.
        fix: first alter what may be altered.

    Raises:
        KafkaError: something could not be altered. That nothing could be looked at is only logged.
    """
    of = {settings.topic(topic.name): topic for topic in topics}
    try:
        states = await look_at_topics(admin, list(of))
        brokers = len((await admin.describe_cluster())["brokers"])
    except KafkaError as error:
        log.warning("the topics' settings could not be looked at", reason=str(error))
        return []
    if fix:
        wanted = [change for state in states for change in changes(of[state.name], state)]
        await mend(admin, states, wanted)
        states = await look_at_topics(admin, list(of))
    return [
        finding for state in states for finding in judge(of[state.name], state, brokers, settings)
    ]


def log_risks(findings: Iterable[Finding]) -> None:
    """Warn of every promise that does not hold."""
    for finding in gathered(findings):
        if finding.level == "risk":
            log.warning(
                "a promise does not hold",
                topics=finding.about,
                found=finding.found,
                wanted=finding.wanted,
                promise=finding.promise,
                remedy=finding.remedy,
            )


def judge(topic: Topic, state: TopicState, brokers: int, settings: Settings) -> list[Finding]:
    """What does not hold of a topic, with the promise that rests on it.

    Args:
        topic: of the contract.
        state: as it is on the broker.
        brokers: of the cluster. With a single one nothing can be promised about losing one, which
            is a note and no risk.
        settings: of this installation.
    """
    findings = [*_judge_replicas(state, brokers, settings), *_judge_presence(state)]
    if not state.config:
        findings.append(_not_readable(state.name))
    findings += [
        _unmet(requirement, state, is_alone=brokers == 1)
        for requirement in requirements_of(topic)
        if not requirement.holds(state.config.get(requirement.setting, requirement.wanted))
    ]
    return findings


def changes(topic: Topic, state: TopicState) -> Iterator[Change]:
    """What `mend` may alter, so that more promises hold."""
    for requirement in requirements_of(topic):
        found = state.config.get(requirement.setting, requirement.wanted)
        if requirement.mendable and not requirement.holds(found):
            yield Change(state.name, requirement.setting, requirement.wanted)
    in_sync = state.config.get(IN_SYNC)
    if in_sync is not None and not _is_safe(int(in_sync), state.replicas):
        yield Change(state.name, IN_SYNC, str(least_in_sync(state.replicas)))


async def mend(
    admin: AIOKafkaAdminClient, states: Iterable[TopicState], wanted: Iterable[Change]
) -> None:
    """Alter the topics; what else was set for them stays. Waits until the broker says it is done.

    Args:
        admin: a started client.
        states: of all topics that are to be changed.
        wanted: the changes.

    Raises:
        KafkaError: the broker refuses one; those before it may be done.
    """
    # This request replaces all that was set for a topic: what is to stay is said again.
    configs: dict[str, dict[str, str]] = {}
    own = {state.name: state.own for state in states}
    for change in wanted:
        configs.setdefault(change.topic, dict(own[change.topic]))[change.setting] = change.value
    if not configs:
        return
    answers = await admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name, config) for name, config in configs.items()]
    )
    for answer in answers:
        for code, message, _kind, name in answer.resources:
            if code:
                error: type[KafkaError] = for_code(code)
                raise error(f"topic {name} could not be altered: {message or error.__name__}")
    for _ in range(_LOOKS):
        now = await _configs(admin, configs)
        if all(now[name][1] == config for name, config in configs.items() if name in now):
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _unmet(requirement: Requirement, state: TopicState, *, is_alone: bool) -> Finding:
    setting, wanted = requirement.setting, requirement.wanted
    if requirement.mendable:
        remedy = FIX
    else:
        remedy = (
            "if the disk has room: kafka-configs.sh --alter --entity-type topics --entity-name "
            f"TOPIC --add-config {setting}={wanted}"
        )
    return Finding(
        # A limit on one machine's disk is a wise one, and the promise ends there.
        "note" if is_alone and not requirement.mendable else "risk",
        state.name,
        f"{setting}={state.config[setting]}",
        f"{setting}={wanted}" + (" or more" if requirement.compare == "at least" else ""),
        requirement.promise,
        remedy,
    )


def _judge_replicas(state: TopicState, brokers: int, settings: Settings) -> Iterator[Finding]:
    if brokers == 1:
        yield Finding(
            "note",
            state.name,
            "one broker has the only copy",
            "3 brokers, replication factor 3",
            SURVIVES,
            "for development this is right; in production use several brokers",
        )
        return
    wanted = max(settings.replication_factor, min(_SAFE_REPLICAS, brokers))
    if state.replicas < wanted:
        yield Finding(
            "risk",
            state.name,
            f"replication factor {state.replicas}",
            f"replication factor {wanted}",
            SURVIVES,
            "it cannot be altered in place: move the partitions to more brokers by "
            "kafka-reassign-partitions.sh, and set FRESHET_REPLICATION_FACTOR for new topics",
        )
    found = state.config.get(IN_SYNC)
    if found is not None and not _is_safe(int(found), state.replicas):
        least = least_in_sync(state.replicas)
        yield Finding(
            "risk",
            state.name,
            f"{IN_SYNC}={found} of {state.replicas} replicas",
            f"{IN_SYNC}={least}",
            "when a broker is lost, writing goes on" if int(found) > least else SURVIVES,
            FIX,
        )


def _is_safe(in_sync: int, replicas: int) -> bool:
    return min(least_in_sync(replicas), _SAFE_REPLICAS - 1) <= in_sync <= least_in_sync(replicas)


def _judge_presence(state: TopicState) -> Iterator[Finding]:
    remedy = "look at the brokers: one is away, or cannot keep up"
    if state.leaderless:
        found, wanted = f"{state.leaderless} partitions have no leader", "a leader for each"
        yield Finding(
            "risk",
            state.name,
            found,
            wanted,
            "what is written can be read, and work goes on",
            remedy,
        )
    elif state.in_sync < state.replicas:
        found = f"{state.in_sync} of {state.replicas} replicas are in sync"
        least = int(state.config.get(IN_SYNC, "1"))
        yield Finding(
            "risk" if state.in_sync <= least else "note",
            state.name,
            found,
            f"{state.replicas} in sync",
            "another broker may be lost, and work goes on",
            remedy,
        )


def _not_readable(name: str) -> Finding:
    return Finding(
        "note",
        name,
        "its settings may not be read",
        "settings that can be looked at",
        "what rests on the settings of this topic is not known to hold",
        "give this Kafka user the right DescribeConfigs on topics",
    )
