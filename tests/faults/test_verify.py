"""`freshet verify` in its short form: every kind of fault once, on both brokers."""

from pathlib import Path

import pytest
from apache import need_apache_kafka
from verify_run import verify

from services.verify.plan import FAULTS


@pytest.mark.slow(70)
@pytest.mark.postgres
@pytest.mark.timeout(960)
@pytest.mark.parametrize("broker", ["local", "apache"])
def test_no_fault_breaks_a_promise(tmp_path: Path, broker: str) -> None:
    if broker == "apache":
        need_apache_kafka()

    report = verify(
        *(tmp_path / "data", "--broker", broker),
        *("--minutes", "0.3", "--seed", "3", "--pages", "1000", "--rate", "60"),
    )

    assert min(report["looked_at"].values()) > 0, report["looked_at"]
    assert set(report["faults"]) == set(FAULTS["one"])
