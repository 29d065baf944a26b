"""`freshet bench recovery`, its loading, in a small form."""

import pytest

from services.bench import recovery_load

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest.mark.long
def test_a_shard_is_loaded_with_what_is_in_flight_and_picks():
    answer = recovery_load.run(3_000, in_flight=200)
    assert answer["requests_in_flight"] == 200
    assert 0 < answer["first_picks"] <= 1000
    assert answer["hosts"] > 10
    assert answer["seconds"].keys() == {"snapshot", "columns", "in_flight", "first_pick"}
    assert answer["load_seconds"] >= max(answer["seconds"].values())
