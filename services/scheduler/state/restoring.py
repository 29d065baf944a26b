"""What was asked for before a shard was loaded, and may be in flight."""

import numpy as np

from services.scheduler.state import events
from services.scheduler.state.events import Requests
from services.scheduler.state.rows import NEVER
from services.scheduler.state.shard import Shard
from shared.store.page_lookup import UNKNOWN


def restore_requests(shard: Shard, asked: Requests) -> int:
    """Requests that were made before a shard was loaded may be in flight, or were not answered.

    A page may have come after the snapshot: its request waits for it.

    Args:
        shard: without these requests, but for those that its database knows to be unanswered.
        asked: all that may not be known there, and maybe some before them.

    Returns:
        how many are not answered yet.
    """
    rows = shard.rows_of(asked.page_ids)
    are_later = shard.unanswered.are_later(rows, asked.requested_us)
    rows = rows[are_later]
    asked = Requests(
        asked.page_ids[are_later],
        asked.hosts[are_later],
        asked.requested_us[are_later],
        asked.deadlines[are_later],
    )
    attempts = shard.attempts.reserve(rows.size)
    first = shard.rules.failed_retry
    waiting = events.restore_requests(shard.pages, attempts, rows, *asked[2:], first)
    shard.unanswered.asked(rows[waiting])
    shard.selector.touch(rows[waiting])
    are_absent = rows == UNKNOWN
    until = np.where(waiting | are_absent, asked.deadlines, NEVER)
    shard.open_requests.asked(asked.page_ids, asked.hosts, until)
    shard.absent.asked(asked, are_absent)
    return int(waiting.sum())
