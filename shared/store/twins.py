"""Names of hosts that have the id of another host of their shard.

An id is a number made of the name, without a secret, so that anybody can make such a name. Its
pages would go by the rules of the other host, and that one by what theirs answer: who comes first
is the host, and the other one is none.
"""

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from numpy.typing import NDArray

_TWINS: Final = """
SELECT wanted.host FROM unnest(%s::int2[], %s::int8[], %s::text[]) AS wanted (shard, host_id, host)
JOIN hosts ON hosts.shard = wanted.shard AND hosts.host_id = wanted.host_id
WHERE hosts.host <> wanted.host
"""


def read_twins(
    connection: psycopg.Connection,
    shards: Sequence[int] | NDArray[Any],
    host_ids: Sequence[int] | NDArray[Any],
    names: Sequence[str],
) -> set[str]:
    """Those of some hosts that have the id of one that is there.

    Args:
        connection: any that may read the names of hosts.
        shards: of the hosts, by the layout of now.
        host_ids: theirs.
        names: of the same hosts.
    """
    rows = connection.execute(_TWINS, (shards, host_ids, names)).fetchall()
    return {str(name) for (name,) in rows}


def why_no_host(name: str) -> str:
    """What is said of one, and of its pages."""
    return f"host {name[:300]} has the id of another host, and is none for that"
