"""What is made sure of, and asked, before shards become more."""

from collections.abc import Mapping
from typing import Any, Final

from services.cli.applied import require_applied
from services.cli.confirming import confirm
from shared.contracts.databases import Database, Databases
from shared.contracts.layout import Layout
from shared.contracts.topics import HOST_LIMITS, PAGE_UPDATES
from shared.runtime.growing import OF_SHARDS
from shared.runtime.kafka import topic_partitions
from shared.runtime.settings import Settings
from shared.store.splitting import Told
from shared.terminal.output import show

_OUT_OF_ORDER: Final = (
    "would count as if they had come after those that are sent to new shards (--wait-seconds gives "
    "them longer)"
)

_IN_ORDER: Final = frozenset({PAGE_UPDATES.name, HOST_LIMITS.name})
"""Topics of which what comes last counts, whenever it was sent."""


def is_wanted(
    databases: Databases,
    before: Mapping[Database, Layout],
    shards: int,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> bool:
    """Whether to go on: a dry run only says what would be done, and people may say no. Whoever
    calls again was asked before.

    Args:
        databases: that are to grow.
        before: how the hosts are shared out in each.
        shards: how many there are to be.
        dry_run: only say it.
        yes: do not ask.
        as_json: how it is said.

    Raises:
        click.Abort: they said no.
        SystemFailed: there is nobody to ask.
    """
    if dry_run:
        show(_would_grow(databases, before, shards), as_json=as_json)
        return False
    others = sorted({layout.shards for layout in before.values()} - {shards})
    if yes or not others:
        return True
    found = " and ".join(map(str, others))
    confirm(f"Let {found} shards become {shards}? There is no way back to fewer.")
    return True


def noted(shards: int) -> str:
    """What holds of a growth that is stopped once the databases know of it."""
    return (
        f"{shards} shards are noted, and there is no way back: call `freshet shards grow {shards}` "
        "again, which goes on with those that are not split yet"
    )


def _would_grow(
    databases: Databases, before: Mapping[Database, Layout], shards: int
) -> dict[str, Any]:
    to_split = sum(
        len(databases.had_by(database, range(layout.shards)))
        if layout.shards != shards
        else len(set(databases.had_by(database, _parents(layout))) - layout.split)
        for database, layout in before.items()
    )
    begun_from = min(
        layout.grown_from if layout.shards == shards else layout.shards
        for layout in before.values()
    )
    return {"would_grow_from": begun_from, "would_grow_to": shards, "would_split": to_split}


def _parents(layout: Layout) -> range:
    """The shards that the last growth splits, or has split."""
    return range(layout.grown_from if layout.shards > layout.grown_from else 0)


async def require_order(
    settings: Settings, before: Mapping[Database, Layout], told: Told, seconds: float
) -> None:
    """Where the topics have partitions already that shards of a database do not have, wait until
    estimators have applied all that there is now: it may be days of it, after a dump of before or
    amid a growth was restored, or what came since a command was killed.

    Args:
        settings: of the process.
        before: how the hosts are shared out in each database.
        told: what is waited for.
        seconds: for so long.

    Raises:
        UserError: they have not.
        KafkaError, psycopg.Error, StoreMismatch: as by `positions.places`.
    """
    found = await topic_partitions(settings, OF_SHARDS)
    # Where some topics have less there was no growth, or they lack what is added first.
    least = min(map(len, found.values()))
    if any(
        least > (layout.grown_from if layout.is_growing else layout.shards)
        and least >= layout.shards
        for layout in before.values()
    ):
        await require_all_applied(settings, told, seconds)


async def require_order_unattended(
    settings: Settings, layout: Layout, told: Told, seconds: float
) -> None:
    """The same of what came before the new partitions were known, where no scheduler waits for it:
    of limits of a host, or what is said of a page, the last one holds.

    Args:
        settings: of the process.
        layout: of all databases, with the new shards.
        told: what is waited for.
        seconds: for so long.

    Raises:
        UserError, KafkaError, psycopg.Error, StoreMismatch: as by `require_order`.
    """
    if layout.is_growing:
        parents = range(layout.grown_from)
        await require_applied(
            settings,
            told=told,
            seconds=seconds,
            because=_OUT_OF_ORDER,
            topics=_IN_ORDER,
            partitions=parents,
        )


async def require_all_applied(settings: Settings, told: Told, seconds: float) -> None:
    """Wait until estimators have applied all that there is now, for a growth that no scheduler
    waits for, or a dump of before one: what is left on the partition of a shard that is split is
    passed on, behind what came on the new partitions since. That may be days of it.

    Args:
        settings: of the process.
        told: what is waited for.
        seconds: for so long.

    Raises:
        UserError, KafkaError, psycopg.Error, StoreMismatch: as by `require_order`.
    """
    await require_applied(settings, told=told, seconds=seconds, because=_OUT_OF_ORDER)
