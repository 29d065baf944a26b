"""The names of the classes that a shard's pages have (`shared.store.class_numbers`)."""

from collections.abc import Mapping

import psycopg

from shared.store.page_status import REMOVED


def read_classes(connection: psycopg.Connection, shard: int) -> dict[int, str]:
    """Number → name of a shard's classes."""
    rows = connection.execute(
        "SELECT number, name FROM page_classes WHERE shard = %s", (shard,)
    ).fetchall()
    return dict(rows)


def read_unused_classes(connection: psycopg.Connection, shard: int) -> set[int]:
    """Numbers of those that no page has any more, or only removed ones, which are of none when they
    come back. All pages of the shard are looked at."""
    rows = connection.execute(
        "SELECT number FROM page_classes WHERE shard = %(shard)s AND number NOT IN "
        "(SELECT page_class FROM pages WHERE shard = %(shard)s AND status <> %(removed)s)",
        {"shard": shard, "removed": REMOVED},
    ).fetchall()
    return {number for (number,) in rows}


def write_classes(connection: psycopg.Connection, shard: int, names: Mapping[int, str]) -> None:
    """Note classes that are new, in the transaction that has the first pages of them.

    A number may have been another's, of which there is no page any more.
    """
    connection.execute(
        "INSERT INTO page_classes SELECT %s, number, name "
        "FROM unnest(%s::int2[], %s::text[]) AS new (number, name) "
        "ON CONFLICT (shard, number) DO UPDATE SET name = excluded.name",
        (shard, list(names), list(names.values())),
    )


def copy_classes(connection: psycopg.Connection, parent: int, children: list[int]) -> None:
    """Note a shard's classes for those, too, that get some of its pages."""
    connection.execute(
        "INSERT INTO page_classes SELECT child, number, name "
        "FROM page_classes AS known, unnest(%s::int2[]) AS child WHERE known.shard = %s "
        "ON CONFLICT (shard, number) DO UPDATE SET name = excluded.name",
        (children, parent),
    )
