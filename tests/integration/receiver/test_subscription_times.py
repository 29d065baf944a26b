"""Subscriptions are renewed in time, also after a clock was wrong."""

import uuid

import psycopg
import pytest

from services.receiver.websub.subscriber import latest_seconds
from services.receiver.websub.subscriptions import REFUSED_SECONDS, RENEW_AFTER, renewal_after
from shared.store.subscriptions import (
    add_subscription,
    confirm_subscription,
    drop_subscription,
    find_subscription,
    refuse_subscription,
    take_due_subscriptions,
    unwant_subscription,
)
from shared.units import SECONDS_PER_DAY

pytestmark = [pytest.mark.postgres, pytest.mark.slow(1)]

NOW = 1.7e9
YEAR = 365 * SECONDS_PER_DAY
FIRST, LONGEST = 60.0, 6 * 3600.0
LEASE = 10 * SECONDS_PER_DAY


@pytest.fixture
def connection(migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as made:
        yield made


def added(connection):
    own_id = uuid.uuid4().hex
    add_subscription(connection, own_id, f"https://a.example/{own_id}", None, "secret")
    return own_id


def due(connection, now):
    taken = take_due_subscriptions(connection, now, 10, FIRST, LONGEST, latest_seconds(LEASE))
    return {one.id for one in taken}


def granted(connection, own_id, now, lease=LEASE):
    confirm_subscription(connection, own_id, now + lease, now + renewal_after(lease, LEASE))


def test_what_a_wrong_clock_put_off_by_a_year_is_asked_for_when_the_time_is_right(connection):
    wanted, active, refused = (added(connection) for _ in range(3))
    ahead = NOW + YEAR
    assert due(connection, ahead) == {wanted, active, refused}
    granted(connection, active, ahead)
    refuse_subscription(connection, refused, "no", ahead + REFUSED_SECONDS)
    assert due(connection, NOW) == {wanted, active, refused}
    # Each once, and then at its time.
    assert due(connection, NOW + 1.0) == set()
    granted(connection, active, NOW)
    assert due(connection, NOW + LONGEST) == {wanted, refused}
    assert find_subscription(connection, active).lease_ends == NOW + LEASE


@pytest.mark.parametrize("lease", [3600.0, LEASE, 100 * LEASE])
def test_a_lease_is_renewed_when_most_of_it_is_over_and_not_before(connection, lease):
    own_id = added(connection)
    assert due(connection, NOW) == {own_id}
    granted(connection, own_id, NOW, lease)
    # However long a hub grants, it is asked again as if it had granted what it was asked for.
    renewed_at = NOW + RENEW_AFTER * min(lease, LEASE)
    # The clocks of two receivers may differ.
    for now in (NOW - 600.0, NOW, renewed_at - 1.0):
        assert due(connection, now) == set()
    assert due(connection, renewed_at) == {own_id}


def test_a_hub_that_refuses_has_its_day(connection):
    own_id = added(connection)
    assert due(connection, NOW) == {own_id}
    refuse_subscription(connection, own_id, "no", NOW + REFUSED_SECONDS)
    for now in (NOW - 600.0, NOW, NOW + REFUSED_SECONDS - 1.0):
        assert due(connection, now) == set()
    assert due(connection, NOW + REFUSED_SECONDS) == {own_id}


def test_one_that_is_wanted_no_more_stays_so_when_its_hub_grants_it_late(connection):
    own_id = added(connection)
    unwant_subscription(connection, f"https://a.example/{own_id}")
    assert not confirm_subscription(connection, own_id, NOW + LEASE, NOW + LEASE / 2)
    assert due(connection, NOW) == {own_id}, "its hub is to be told"
    assert drop_subscription(connection, own_id)
