"""What takes connections and never answers is named, and not waited for."""

import contextlib
import socket
import ssl
import threading

import pytest
from aiokafka.errors import KafkaConnectionError
from click.testing import CliRunner

from services.cli import kafka
from services.cli.main import main
from shared.runtime.settings import Settings


@contextlib.contextmanager
def listening(answer):
    """A port where each connection is handled by a function."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        for connection in held:
            connection.close()


@pytest.fixture(autouse=True)
def told_time():
    """Brokers are asked for their time, too."""


@pytest.fixture
def silent():
    with listening(lambda _: None) as address:
        yield address


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 0.2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "ensure"],
        ["bandwidth", "get"],
        ["bandwidth", "set", "1/s"],
        ["hosts", "limit", "a.example", "1/s"],
        ["crawl", "https://a.example/"],
        ["dead-letters", "list"],
        ["backup", "save", "kept.json"],
    ],
)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_broker_that_never_answers_is_named(silent, monkeypatch, tmp_path, arguments, protocol):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", silent)
    monkeypatch.setenv("FRESHET_KAFKA_SECURITY_PROTOCOL", protocol)
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 2
    said = f"Error: the broker at {silent} takes connections and does not answer"
    assert said in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_one_broker_that_answers_is_enough(silent):
    with listening(lambda connection: connection.sendall(b"\0\0\0\x06")) as answering:
        kafka.require_broker(Settings(kafka_bootstrap_servers=f"{silent},{answering}"))


@pytest.mark.parametrize("tls", [None, ssl.create_default_context()])
def test_one_that_hangs_up_is_left_to_who_knows_why(tls):
    with listening(lambda connection: connection.close()) as address:
        kafka._ask(address, tls, 60.0)


def test_one_that_is_away_beside_a_silent_one_is_named_too(silent):
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = f"127.0.0.1:{server.getsockname()[1]}"
    settings = Settings(kafka_bootstrap_servers=f"{away},{silent}")
    with pytest.raises(kafka.BrokerSilentError, match=r"no answer within .*; .*refused"):
        kafka.require_broker(settings)
    with pytest.raises(KafkaConnectionError, match="refused"):
        kafka.require_broker(Settings(kafka_bootstrap_servers=away))
