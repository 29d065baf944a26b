"""Pages whose requests nobody answers: a row each, which the shard's scheduler writes.

Estimators do not hear of what nobody says. A scheduler that loads a shard goes on from here, and
from the requests since then, with the waiting of these pages.

What is written was so once, and of a later crawl the page itself tells: whoever loads a row goes by
that. So a row that is left does no harm. Only the scheduler that has loaded a shard last writes its
rows (`splits.take_over`): what another one says late is not heard.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.columns import Integers, UnansweredNews, UnansweredPages

_LOCK: Final = """
SELECT made.shard FROM shard_claims AS made
JOIN unnest(%s::int2[], %s::text[]) AS mine (shard, claim) USING (shard, claim)
ORDER BY made.shard FOR SHARE OF made
"""

_FORGET: Final = """
DELETE FROM unanswered_pages AS known USING unnest(%s::int2[], %s::int8[]) AS gone (shard, id)
WHERE known.shard = gone.shard AND known.page_id = gone.id
"""

_WRITE: Final = """
INSERT INTO unanswered_pages
    (shard, page_id, requests, requested_at, deadline_at, last_attempt_at)
SELECT * FROM unnest(%s::int2[], %s::int8[], %s::int2[], %s::float8[], %s::float8[], %s::float8[])
    AS new (shard, page_id, requests, requested_at, deadline_at, last_attempt_at)
ORDER BY shard, page_id
ON CONFLICT (shard, page_id) DO UPDATE SET
    requests = excluded.requests, requested_at = excluded.requested_at,
    deadline_at = excluded.deadline_at, last_attempt_at = excluded.last_attempt_at
"""

_READ: Final = """
SELECT array_agg(page_id), array_agg(requests), array_agg(requested_at), array_agg(deadline_at),
    array_agg(last_attempt_at)
FROM unanswered_pages WHERE shard = %s
"""

_READ_ONE: Final = """
SELECT CASE WHEN %(last)s <= last_attempt_at THEN requests ELSE 1 END, deadline_at
FROM unanswered_pages
WHERE shard = %(shard)s AND page_id = %(page)s AND %(last)s + 1e-6 < requested_at
"""
"""As the scheduler takes a row that it loads (`scheduler.state.unanswered.load_unanswered`)."""

_MOVE: Final = """
UPDATE unanswered_pages AS known SET shard = page.shard FROM pages AS page
WHERE known.shard = %s AND page.shard = ANY(%s) AND page.page_id = known.page_id
"""


def write_unanswered(connection: psycopg.Connection, news: Sequence[UnansweredNews]) -> set[int]:
    """Write what is new of shards; of those that another scheduler has loaded since, nothing.

    Args:
        connection: with a transaction.
        news: one a shard.

    Returns:
        the shards of which it was written.

    Raises:
        psycopg.errors.LockNotAvailable: a row is another's for too long; try again later.
    """
    asked = [one.shard for one in news], [one.claim for one in news]
    ours = {shard for (shard,) in connection.execute(_LOCK, asked).fetchall()}
    news = [one for one in news if one.shard in ours]
    answered = [(one.shard, one.answered) for one in news if one.answered.size]
    if answered:
        ids = np.concatenate([found for _, found in answered])
        connection.execute(_FORGET, (_numbers(answered), ids))
    waiting = [(one.shard, one.pages.page_ids) for one in news if one.pages.page_ids.size]
    if waiting:
        columns = zip(*(one.pages.columns for one in news), strict=True)
        connection.execute(_WRITE, (_numbers(waiting), *map(np.concatenate, columns)))
    return ours


def _numbers(found: Sequence[tuple[int, Integers]]) -> NDArray[np.int16]:
    """The number of its shard for each id."""
    shards = np.array([shard for shard, _ in found], np.int16)
    return np.repeat(shards, [ids.size for _, ids in found])


def read_unanswered(connection: psycopg.Connection, shard: int) -> UnansweredPages:
    """The rows of a shard, in any order."""
    row = connection.execute(_READ, (shard,), binary=True).fetchone()
    if row is None or row[0] is None:
        return UnansweredPages.none()
    kinds = (np.int64, np.int16, np.float64, np.float64, np.float64)
    return UnansweredPages(*map(np.asarray, row, kinds))


class Silence(NamedTuple):
    """What nobody has said of a page."""

    requests: int
    """How many in a row were not answered up to now."""
    since: float | None
    """When the time of the last one was over, Unix seconds; None: there is none."""


def read_silence(
    connection: psycopg.Connection, shard: int, page_id: int, last_attempt_at: float
) -> Silence:
    """Of one page, as far as its scheduler has written it.

    Args:
        connection: to read by.
        shard: of the page.
        page_id: of the page.
        last_attempt_at: its last crawl that is known, successful or not; `NEVER`: none.
    """
    asked = {"shard": shard, "page": page_id, "last": last_attempt_at}
    row = connection.execute(_READ_ONE, asked).fetchone()
    return Silence(*row) if row is not None else Silence(0, None)


def move_unanswered(connection: psycopg.Connection, parent: int, children: Collection[int]) -> None:
    """Let rows of a shard follow its pages, which are moved already, to those it was split among.

    Args:
        connection: with the transaction of the split.
        parent: the shard.
        children: the others.
    """
    connection.execute(_MOVE, (parent, np.array(sorted(children), np.int16)))
