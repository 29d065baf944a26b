"""`freshet verify` in its short form: every kind of fault once, on both brokers, as shards grow."""

from pathlib import Path

import pytest
from apache import need_apache_kafka
from verify_run import verify

from services.verify.plan import FAULTS


@pytest.mark.slow(80)
@pytest.mark.postgres
@pytest.mark.timeout(960)
@pytest.mark.parametrize("broker", ["local", "apache"])
def test_no_fault_breaks_a_promise(tmp_path: Path, broker: str) -> None:
    if broker == "apache":
        need_apache_kafka()

    report = verify(
        *(tmp_path / "data", "--broker", broker),
        *("--minutes", "0.3", "--seed", "3", "--pages", "1000", "--rate", "60"),
        *("--faults", "all,grow"),
    )

    assert min(report["looked_at"].values()) > 0, report["looked_at"]
    assert set(report["faults"]) == {*FAULTS["one"], "grow"}
