"""Ports of servers that start: nobody else's, and no connection's by the time they are bound."""

import random
import socket
from itertools import chain, repeat
from pathlib import Path

import pytest

from deploy.local import process
from deploy.local.process import StartError, free_port

LOOPBACK = "127.0.0.1"


def outgoing_from(monkeypatch: pytest.MonkeyPatch, file: Path, text: str) -> None:
    file.write_text(text)
    monkeypatch.setattr(process, "_OUTGOING", file)


def test_no_outgoing_connection_is_given_the_port_of_a_server(monkeypatch, tmp_path):
    outgoing_from(monkeypatch, tmp_path / "range", "30000\t60999\n")
    assert all(free_port() < 30_000 for _ in range(200))


@pytest.mark.parametrize("text", ["1024\t60999\n", "", "of no use"])
def test_there_are_ports_whatever_outgoing_connections_get(monkeypatch, tmp_path, text):
    outgoing_from(monkeypatch, tmp_path / "range", text)
    with socket.socket() as server:
        server.bind((LOOPBACK, free_port()))


def chosen_in_turn(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    turns = chain(ports, repeat(ports[-1]))
    monkeypatch.setattr(random.SystemRandom, "choice", lambda _self, _ports: next(turns))


def test_a_port_that_is_taken_is_passed_over(monkeypatch):
    free = free_port()
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        chosen_in_turn(monkeypatch, taken, taken, free)
        assert free_port() == free
        chosen_in_turn(monkeypatch, taken)
        with pytest.raises(StartError, match="no free port"):
            free_port()
