"""The simulator's model of the database, and PostgreSQL beside it, in step."""

from unittest import mock

import pytest

from migrations.upgrade import migrate
from services.verify.simulation.campaign import judge, warm_up
from services.verify.simulation.plan import KINDS, Scale
from services.verify.simulation.store.postgres import NOT_IN_STEP
from services.verify.simulation.store.statements import Statements

SCALE = Scale(kinds=tuple(kind for kind in KINDS if kind not in NOT_IN_STEP))

SEEDS = range(3, 6)


@pytest.fixture
def migrated(database_url):
    migrate(database_url, SCALE.partitions)
    warm_up()
    return database_url


@pytest.mark.long
@pytest.mark.slow(8)
def test_both_tell_the_same_story_and_end_with_the_same_tables(migrated):
    for seed in SEEDS:
        beside = judge(seed, SCALE, database_url=migrated)
        assert beside.broken == (), beside.examples
        assert beside.fingerprint == judge(seed, SCALE).fingerprint


@pytest.mark.slow(3)
def test_a_model_that_does_something_else_is_found_out(migrated):
    with mock.patch.object(Statements, "append_observations", return_value=None):
        verdict = judge(SEEDS.start, SCALE, database_url=migrated)
    assert "postgres" in verdict.broken
