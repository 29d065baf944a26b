"""No limit of a command lets through what is no number."""

import pytest
from click.testing import CliRunner

from services.cli.main import main


@pytest.mark.parametrize(
    "arguments",
    [
        # Nothing is later than nan, and PostgreSQL has everything before it: all would go.
        ["pages", "purge", "--yes", "--days", "nan"],
        ["pages", "max-age", "https://a.example/", "--days", "inf"],
        ["hosts", "block", "a.example", "--hours", "inf"],
        ["hosts", "block", "a.example", "--hours", "1e300"],
        ["shards", "grow", "8", "--known-seconds", "nan"],
        ["plan", "--crawls-per-second", "1", "--pages", "nan"],
    ],
)
def test_what_is_no_finite_number_is_refused(arguments):
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 2
    assert f"Invalid value for '{arguments[-2]}'" in result.output
