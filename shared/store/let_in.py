"""Pages that links make: each is let in once, by one transaction, however many let pages in.

A host's quota is of all its pages. How many those are is counted by shard, now and then
(`host_pages`); what is let in is noted at once, in rows that whoever lets pages of a host in holds
until it is done. So the count and the notes together never let one page too many in:

- `let_in_pages` are those that the estimators may not have yet. One that is let in and was never
  published, as its discoverer was killed, is let in again, and counts once.
- `let_in_hosts.pages` only rises: what was let in since the count is the difference to it.

Ids are numbers made of names; who erases a page finds nothing else of it here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import psycopg

from shared.contracts.identity import PageIdentity, host_id_of, shard_of
from shared.store.known_pages import known_pages
from shared.store.layout import read_layout
from shared.store.twins import read_twins
from shared.units import SECONDS_PER_DAY

Became = Literal["new", "known", "quota", "host"]

PLACES: Final = 2**31
"""Of hosts: a place is `shard_of` so many shards, from which it follows for any number of them."""

KEPT_SECONDS: Final = SECONDS_PER_DAY
"""A page that has not come to the estimators for so long is believed to be lost. `discoveries` are
kept as long: who was killed before it published a page does it again within that time."""

_ADD_HOSTS: Final = """
INSERT INTO let_in_hosts (host_id, place)
SELECT * FROM unnest(%s::int8[], %s::int4[]) ORDER BY 1 ON CONFLICT (host_id) DO NOTHING
"""
_HOLD_HOSTS: Final = """
SELECT host_id, pages FROM let_in_hosts WHERE host_id = ANY(%s) ORDER BY host_id FOR UPDATE
"""
_NOTED: Final = "SELECT page_id FROM let_in_pages WHERE page_id = ANY(%s)"
_ADD_PAGES: Final = """
INSERT INTO let_in_pages (page_id, host_id, place)
SELECT * FROM unnest(%s::int8[], %s::int8[], %s::int4[])
"""
_COUNT_PAGES: Final = """
UPDATE let_in_hosts AS host SET pages = host.pages + more.pages
FROM unnest(%s::int8[], %s::int8[]) AS more (host_id, pages) WHERE host.host_id = more.host_id
"""
_FORGET: Final = f"""
DELETE FROM let_in_pages AS noted WHERE place %% %(modulus)s = %(shard)s AND (
    let_in_at < extract(epoch FROM now()) - {KEPT_SECONDS}
    OR EXISTS (SELECT FROM pages WHERE shard = %(shard)s AND pages.page_id = noted.page_id))
"""


def place_of(host: str) -> int:
    """The place of a host: its shard is this modulo the number of shards."""
    return shard_of(host, PLACES)


def let_in(
    connection: psycopg.Connection,
    pages: Sequence[PageIdentity],
    before: Mapping[str, int],
    most: int,
) -> dict[int, Became]:
    """Let pages in as long as their hosts have fewer than the most; what became of each, by id.

    Args:
        connection: in autocommit.
        pages: each once.
        before: host → how many it has besides those that `let_in_hosts` counts; may be below 0.
        most: pages of a host.
    """
    ids = {page.host: host_id_of(page.host) for page in pages}
    twins = _twins(connection, ids)
    # By itself: who makes a row waits for others who make the same one, and holds nothing.
    connection.execute(_ADD_HOSTS, (list(ids.values()), [place_of(host) for host in ids]))
    with connection.transaction():
        held = connection.execute(_HOLD_HOSTS, (list(ids.values()),)).fetchall()
        counted = {int(host_id): int(count) for host_id, count in held}
        # In this order: a page is forgotten here only when it is there.
        rows = connection.execute(_NOTED, ([page.page_id for page in pages],)).fetchall()
        noted = {int(page_id) for (page_id,) in rows}
        there = known_pages(connection, pages)
        became: dict[int, Became] = {}
        more: Counter[str] = Counter()
        new = []
        for page in pages:
            has = before[page.host] + counted[ids[page.host]] + more[page.host]
            if page.host in twins:
                became[page.page_id] = "host"
            elif page.page_id in there:
                became[page.page_id] = "known"
            elif page.page_id in noted:
                became[page.page_id] = "new"
            elif has >= most:
                became[page.page_id] = "quota"
            else:
                became[page.page_id] = "new"
                more[page.host] += 1
                new.append(page)
        if new:
            hosts = [page.host for page in new]
            columns = [page.page_id for page in new], [ids[host] for host in hosts]
            connection.execute(_ADD_PAGES, (*columns, [place_of(host) for host in hosts]))
            connection.execute(_COUNT_PAGES, ([ids[host] for host in more], list(more.values())))
    return became


def _twins(connection: psycopg.Connection, ids: Mapping[str, int]) -> set[str]:
    layout = read_layout(connection)
    shards = [layout.shard_of(host) for host in ids]
    try:
        return read_twins(connection, shards, list(ids.values()), list(ids))
    except psycopg.errors.InsufficientPrivilege:
        # Until the next `freshet migrate` it may not read names. Estimators refuse them as well.
        return set()


def forget_let_in(connection: psycopg.Connection, shard: int, modulus: int) -> int:
    """Forget pages of a shard that have come to it, or never will; how many.

    Args:
        connection: in autocommit.
        shard: of their hosts.
        modulus: of the shard, in the layout as it is (`Layout.modulus_of`).
    """
    return connection.execute(_FORGET, {"shard": shard, "modulus": modulus}).rowcount
