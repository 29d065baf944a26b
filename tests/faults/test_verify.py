"""`freshet verify` in its short form: every kind of fault once, as shards grow."""

from pathlib import Path

import pytest
from apache import best_broker
from verify_run import verify

from services.verify.plan import FAULTS


@pytest.mark.slow(90)
@pytest.mark.postgres
@pytest.mark.timeout(960)
def test_no_fault_breaks_a_promise(system_dir: Path) -> None:
    report = verify(
        *(system_dir / "data", "--broker", best_broker()),
        *("--minutes", "0.3", "--seed", "3", "--pages", "1000", "--rate", "40"),
        *("--faults", "all,grow"),
    )

    assert min(report["looked_at"].values()) > 0, report["looked_at"]
    assert set(report["faults"]) == {*FAULTS["one"], "grow"}
