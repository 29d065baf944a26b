"""A broker that hangs up, as it speaks no TLS: a command says so at once, and waits for nothing."""

import pytest
from click.testing import CliRunner

from services.cli.main import main


@pytest.mark.parametrize(
    "arguments", [["topics", "ensure"], ["topics", "list"], ["bandwidth", "get"]], ids=" ".join
)
def test_a_broker_without_tls_is_not_waited_for(local_broker, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", local_broker.bootstrap_servers)
    monkeypatch.setenv("FRESHET_KAFKA_SECURITY_PROTOCOL", "SSL")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "see FRESHET_KAFKA_SECURITY_PROTOCOL" in result.output
