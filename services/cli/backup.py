"""What operators have set: the budget, and the limits of groups and hosts.

A copy of them is a file of JSON lines: a head, then a line for each message that stands
(`services.cli.standing`), with its topic and key; of a host one for each rule. Beside a dump of the
database that is everything.
"""

import math
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import msgspec

from services.cli.broker_time import go_by_broker_if_told
from services.cli.errors import UserError
from services.cli.kafka import publishing
from services.cli.standing import Stands, all_standing, name_of, parts_of
from shared.contracts.codec import MAX_MESSAGE_BYTES, decode
from shared.contracts.topics import BANDWIDTH, GROUP_LIMITS, HOST_LIMITS, Topic
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL

SAVED: Final[tuple[Topic, ...]] = (BANDWIDTH, GROUP_LIMITS, HOST_LIMITS)
"""What operators write. `multipliers` is compacted too, but the coordinator makes it anew."""

_WHAT: Final = {
    BANDWIDTH.name: "budget",
    GROUP_LIMITS.name: "limit of a group",
    HOST_LIMITS.name: "rule of a host",
}

FORMAT: Final = 1

CLOCKS_AGREE_SECONDS: Final = 300.0
"""What was said of a host goes by its sender's clock, which may be behind by so much."""

MOST_LINE_BYTES: Final = 4 * MAX_MESSAGE_BYTES


class Head(msgspec.Struct, frozen=True):
    """The first line of a copy."""

    freshet_backup: int
    saved_at: float
    """Unix seconds."""


class Line(msgspec.Struct, frozen=True):
    """A message that stands."""

    topic: str
    """Without prefix."""
    key: str
    message: msgspec.Raw
    """As it was written, or the part about one rule: what this version does not know stays."""


class Copy(NamedTuple):
    """What a file has."""

    saved_at: float
    """Unix seconds."""
    lines: list[Line]


@dataclass(slots=True)
class Restored:
    """What became of the messages of a copy."""

    restored: int = 0
    same: int = 0
    newer: int = 0
    """Another message stands, which was set since the copy was made: it stays."""
    keys: list[str] = field(default_factory=list)
    """The first of those that were restored."""

    def count(self, line: Line, value: bytes, there: Stands | None, since: float) -> bool:
        """Count what becomes of a message; whether it is to be published.

        Args:
            line: of the copy.
            value: its message, or the part about one rule.
            there: what stands in its place; None: nothing.
            since: what was said later goes before the copy; Unix seconds.
        """
        key = line.key
        if there is not None and _same(_saved(line.topic), there.value, value):
            self.same += 1
            return False
        if there is not None and there.said_at > since:
            self.newer += 1
            return False
        self.restored += 1
        if key not in self.keys and len(self.keys) < 10:
            self.keys.append(key)
        return True


def read_copy(file: TextIO) -> Copy:
    """What a copy has.

    Raises:
        UserError: it is none, or a line of it is damaged; says which.
    """
    head, lines = None, list[Line]()
    for number, text in enumerate(_lines(file), start=1):
        try:
            if head is None:
                head = msgspec.json.decode(text, type=Head)
                if head.freshet_backup != FORMAT:
                    raise UserError(f"the copy is of format {head.freshet_backup}, not {FORMAT}")
                continue
            line = _checked(msgspec.json.decode(text, type=Line))
        except (msgspec.MsgspecError, ValueError) as error:
            raise UserError(f"line {number} of the copy cannot be read: {error}") from error
        if line.topic == BANDWIDTH.name and any(one.topic == line.topic for one in lines):
            raise UserError(
                f"line {number} of the copy is another budget, and only one can stand: leave the "
                "line of the one that is meant"
            )
        lines.append(line)
    if head is None:
        raise UserError("the file is empty: it is no copy")
    return Copy(head.saved_at, lines)


def _checked(line: Line) -> Line:
    """A line whose message its readers take, under the key that such messages have: by another one
    the topic would keep it beside those that come later.

    Raises:
        BadMessage, BadHost, ValueError: they refuse it.
        UserError: there are no such messages in a copy.
    """
    name = name_of(_saved(line.topic), bytes(line.message))
    return msgspec.structs.replace(line, key=name)


def _lines(file: TextIO) -> Iterator[str]:
    while text := file.readline(MOST_LINE_BYTES + 1):
        if len(text) > MOST_LINE_BYTES:
            raise UserError("a line of the copy is too long: it is another file")
        yield text


def _saved(name: str) -> Topic:
    for topic in SAVED:
        if topic.name == name:
            return topic
    raise UserError(f"the copy has messages of {name!r}, which no copy has")


async def save(settings: Settings, path: Path, *, force: bool = False) -> dict[str, int]:
    """Write a copy; the file is there when all of it is.

    Args:
        settings: of the installation.
        path: of the file.
        force: also where nothing stands of a topic, in the place of a copy that has something.

    Returns:
        topic → messages.

    Raises:
        KafkaError: a topic cannot be read.
        psycopg.Error: a database is away, or refuses.
        UserError: the file cannot be written, or is none: a pipe, a device; or it has a budget, or
            limits, and nothing stands any more of that topic.
    """
    place = _place_of(path)
    await go_by_broker_if_told(settings)
    counts, nothing = {}, set()
    lines = [msgspec.json.encode(Head(FORMAT, settings.clock().now()))]
    for topic in SAVED:
        standing = await all_standing(settings, topic)
        if not standing:
            nothing.add(topic.name)
        values = [(key, one.value) for (key, _), one in sorted(standing.items()) if one.is_set]
        counts[topic.name] = len(values)
        lines += [
            msgspec.json.encode(Line(topic.name, key, msgspec.Raw(value))) for key, value in values
        ]
    if nothing and not force:
        _require_nothing_lost(path, place, nothing)
    try:
        _replace(place, b"\n".join(lines) + b"\n")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    return counts


def _require_nothing_lost(path: Path, place: Path, nothing: Container[str]) -> None:
    """Let a copy stay that has what was lost. What was taken back by commands is another matter:
    that is known of it.

    Args:
        path: of the file, as it was given.
        place: where that leads to.
        nothing: topics of which nothing stands, not even that it was taken back.

    Raises:
        UserError: it has.
    """
    try:
        with place.open(encoding="utf-8") as file:
            had = {line.topic for line in read_copy(file).lines}
    except (OSError, UnicodeDecodeError, UserError):
        return  # no copy is lost
    if lost := [f"no {what}" for name, what in _WHAT.items() if name in nothing and name in had]:
        raise UserError(
            f"{' and '.join(lost)} stands any more, and the copy in {path} has some: it stays, as "
            "topics may be lost. Restore it (`freshet backup restore`), name another file, or give "
            "--force"
        )


def _place_of(path: Path) -> Path:
    """Where a path leads to: a link stays one.

    Raises:
        UserError: there is something that is no file, and a file would take its place.
    """
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):
        raise UserError(f"{path} is no file: name one, and copy it from there")
    return Path(place)


def _replace(path: Path, content: bytes) -> None:
    """Let a file have a content: all of it, or what it had before."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        # Else a machine that loses its power may know the new name, and not what is in it.
        os.fsync(file.fileno())
    unfinished.replace(path)


async def restore(
    settings: Settings, copy: Copy, done: Restored, *, overwrite: bool, dry_run: bool
) -> None:
    """Publish what a copy has and the installation lacks.

    Args:
        settings: of the installation.
        copy: to be restored.
        done: gets what becomes of each message, also of those before an error.
        overwrite: where another message stands, publish that of the copy all the same.
        dry_run: only say what would be done.

    Raises:
        SystemFailed: brokers acknowledge nothing.
        KafkaError: a topic cannot be read or written.
        psycopg.Error: a database is away, or refuses.
    """
    await go_by_broker_if_told(settings)
    standing = {topic.name: await all_standing(settings, topic) for topic in SAVED}
    since = math.inf if overwrite else copy.saved_at - CLOCKS_AGREE_SECONDS
    async with publishing(settings) as publisher:
        for line in copy.lines:
            topic = _saved(line.topic)
            for rule, value in parts_of(topic, bytes(line.message)):
                there = standing[topic.name].get((line.key, rule))
                if done.count(line, value, there, since) and not dry_run:
                    # Without a partition: Kafka's own rule is the shards', and any number will do.
                    await publisher.send(topic, line.key.encode(), value, at=WALL.now())


def _same(topic: Topic, one: bytes, other: bytes) -> bool:
    return bool(topic.message and decode(topic.message, one) == decode(topic.message, other))
