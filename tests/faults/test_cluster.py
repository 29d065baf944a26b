"""`freshet verify --topology cluster` in its short form: servers are lost, and nothing else is."""

from pathlib import Path

import pytest
from apache import need_apache_kafka
from verify_run import verify

FAULTS = ("node-kill", "failover", "forget")


@pytest.mark.long
@pytest.mark.slow(90)
@pytest.mark.postgres
@pytest.mark.kafka
@pytest.mark.timeout(960)
def test_a_node_and_a_primary_are_lost_and_nothing_else(system_dir: Path) -> None:
    need_apache_kafka()

    report = verify(
        *(system_dir / "data", "--topology", "cluster", "--faults", ",".join(FAULTS)),
        *("--minutes", "0.3", "--seed", "5", "--pages", "750", "--rate", "40"),
    )

    assert set(report["faults"]) == set(FAULTS)
    assert report["records_forgotten"] > 0
