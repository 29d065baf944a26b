"""What `freshet doctor` says of a server that writes more to its log than it has to."""

import pytest

from services.cli.doctor.database_log import log_finding

BOTH = ("pglz", "lz4", "zstd", "on", "off")


@pytest.mark.parametrize("setting", ["off", "pglz", "on"])
def test_a_server_that_could_make_its_log_small_cheaply_is_told_how(setting):
    finding = log_finding(setting, BOTH)
    assert (finding.level, finding.found, finding.wanted) == ("note", setting, "lz4")
    assert "ALTER SYSTEM SET wal_compression = lz4" in finding.remedy
    assert log_finding(setting, ("pglz", "zstd", "on", "off")).wanted == "zstd"


@pytest.mark.parametrize(
    ("setting", "offered"),
    [("lz4", BOTH), ("zstd", BOTH), ("off", ("pglz", "on", "off")), ("off", ()), ("on", ())],
)
def test_one_that_does_or_cannot_is_left_alone(setting, offered):
    assert log_finding(setting, offered).level == "ok"
