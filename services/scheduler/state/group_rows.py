"""Rows of the groups of hosts that have limits, as a shard has them (`state.groups`)."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import GROUP, Rows
from shared.contracts.shares import DefaultShares
from shared.pacing.groups import Groups, divided_interval, even_interval, interval_of


def own_rows(groups: Groups, shard: int) -> Rows:
    """By number: of groups that have a limit of their own; the first is for hosts of none."""
    rows = np.zeros(len(groups) + 1, GROUP)
    for row, group in zip(rows[1:], groups, strict=True):
        row["rate"], row["since"] = group.crawls_per_second, group.since
        row["low"], row["high"] = interval_of(group, shard)
        # Slots up to `first_slot` are of before, and nobody's.
        row["first_slot"], row["used"] = group.first_slot, math.floor(group.first_slot)
        row["kept"] = math.inf
    return rows


def default_rows(count: int, default: DefaultShares, shard: int) -> Rows:
    """Of so many groups that go by the default limit, and are not divided."""
    rows = np.zeros(count, GROUP)
    rows["rate"], rows["since"] = default.crawls_per_second, default.since
    rows["low"], rows["high"] = even_interval(default, shard)
    rows["first_slot"], rows["used"] = default.first_slot, math.floor(default.first_slot)
    rows["kept"] = math.inf
    return rows


def divide(rows: Rows, default: DefaultShares, shard: int, find: Callable[[str], int]) -> None:
    """Give the shard its parts of the groups that are divided.

    Args:
        rows: of `default_rows`.
        default: the limit.
        shard: its number.
        find: place of a group among the rows; a negative one: it has none.
    """
    for of in default.divided:
        place = find(of.group)
        if of.shards and 0 <= place < rows.size:
            rows[place]["low"], rows[place]["high"] = divided_interval(of, shard)


def part_of(rows: Rows) -> NDArray[np.float64]:
    """Crawls per second that are the shard's."""
    return np.asarray(rows["rate"] * (rows["high"] - rows["low"]), np.float64)
