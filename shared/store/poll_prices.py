"""What the poller has to know of pages and of the budget, to tell what a poll is worth."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.policy.polls import slot_price

Column = NDArray[np.float64]


class Beliefs(NamedTuple):
    """What is learned of some pages; one row a page."""

    importance: Column
    alpha: Column
    """Changes a day that no signal announces."""
    kappa: Column
    """Evidence of a signal."""
    gamma: Column
    """Signals a day."""


def read_slot_price(connection: psycopg.Connection) -> float:
    """What a slot is worth, as the coordinator noted it last; 0: it never did."""
    row = connection.execute(
        "SELECT multiplier, coalesce(slot_value, multiplier) FROM multiplier_history "
        "ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return slot_price(*row) if row else 0.0


def read_beliefs(
    connection: psycopg.Connection,
    shard: int,
    page_ids: Sequence[int],
    weights: Mapping[str, float],
) -> Beliefs:
    """Of those pages of a shard that are there, in whatever order.

    Args:
        connection: any.
        shard: of the pages.
        page_ids: of the pages.
        weights: by class, by what the importance of its pages is multiplied.
    """
    rows = connection.execute(
        "SELECT importance * coalesce(weight, 1), unsignalled_change_rate, signal_evidence, "
        "signal_rate FROM page_estimates LEFT JOIN unnest(%s::text[], %s::float8[]) "
        "AS of (class, weight) USING (class) WHERE shard = %s AND page_id = ANY(%s)",
        (list(weights), list(weights.values()), shard, list(page_ids)),
    ).fetchall()
    return Beliefs(*np.array(rows, np.float64).reshape(-1, len(Beliefs._fields)).T)
