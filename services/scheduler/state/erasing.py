"""A host is erased: its pages, what was learned of it, and its rules."""

from services.scheduler.state.hosts import pages_of
from services.scheduler.state.rows import REMOVED
from services.scheduler.state.shard import Shard


def erase_host(shard: Shard, name: str, time: float) -> None:
    """Forget a host and its pages, but for what newer updates say of them, and for rules that were
    said since.

    All in one go: who asks for it removes the pages that are known before, one by one.

    Args:
        shard: of the host.
        name: of the host.
        time: of the update that says so, Unix seconds.
    """
    shard.removals.note_host(name, time)
    host = shard.hosts.find(name)
    if host is None:
        return
    rows = pages_of(shard.records, shard.hosts.rows, host)
    rows = rows[shard.pages["status"][rows] != REMOVED]
    for page_id in shard.page_ids_of(rows).tolist():
        shard.remove(page_id, time, for_good=True)
    shard.hosts.forget(host, time)
    shard.groups.name(host, None)
    shard.open_requests.follow(host)
    shard.selector.touch_host(host)
    shard.changes.told += 1
