"""A growth goes on only where the schema is the one that its command knows: who moves all that a
shard has must know each table that has something of it."""

import psycopg
import pytest
from store_contents import SHARDS

from shared.contracts.databases import Databases
from shared.contracts.layout import Layout
from shared.store.deployment import NEEDED_REVISION, StoreMismatch
from shared.store.layout import fetch_layout
from shared.store.splitting import prepare, require_can_grow, split_all

GROWN = 2 * SHARDS


def set_revision(url, number):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", (number,))


@pytest.mark.parametrize("begin", [require_can_grow, prepare])
@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("0028", rf"freshet migrate.*0028, and {NEEDED_REVISION} is needed"),
        ("9999", rf"newer.*9999.*{NEEDED_REVISION}.*that version's `freshet shards grow`"),
    ],
)
def test_no_growth_begins_where_it_could_not_end(filled, begin, revision, said):
    """There is no way back: another number would be refused from then on."""
    set_revision(filled, revision)
    with pytest.raises(StoreMismatch, match=said):
        begin(Databases.alone(filled), GROWN)
    assert fetch_layout(filled) == Layout.of(SHARDS)


@pytest.mark.slow(1)
def test_a_command_whose_version_is_replaced_in_the_middle_leaves_the_rest_to_the_next(filled):
    """`freshet migrate` of the next version waits until a shard is split, and so the command finds
    another schema at the next one."""

    def migrate(_done, _total, what):
        if what == "shard 0 is split: tidying up":
            set_revision(filled, "9999")

    layout = prepare(Databases.alone(filled), GROWN)
    at_once = {"wait_seconds": 0.0, "unattended": True}
    with pytest.raises(StoreMismatch, match=r"newer.*that version's `freshet shards grow`"):
        split_all(Databases.alone(filled), layout, migrate, **at_once)
    assert fetch_layout(filled).split == {0}
    set_revision(filled, NEEDED_REVISION)
    again = prepare(Databases.alone(filled), GROWN)
    assert len(split_all(Databases.alone(filled), again, lambda *_: None, **at_once)) == SHARDS - 1
    assert not fetch_layout(filled).is_growing
