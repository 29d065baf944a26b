"""Ports of servers that start: nobody else's, and no connection's by the time they are bound."""

import random
import socket
import subprocess
import sys
from collections import deque
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
    with socket.create_server((LOOPBACK, 0)) as other, socket.create_server((LOOPBACK, 0)) as gone:
        taken, free = other.getsockname()[1], gone.getsockname()[1]
        gone.close()
        chosen_in_turn(monkeypatch, taken, taken, free)
        assert free_port() == free
        chosen_in_turn(monkeypatch, taken)
        with pytest.raises(StartError, match="no free port"):
            free_port()


ASK_FOR = """
from deploy.local import process
process._ports_of_servers = lambda: [{port}]
print(process.free_port())
"""


def test_a_port_whose_server_is_not_there_yet_is_nobody_elses():
    """Two tests of one run, a process each, once had one worker's port: it could never start."""
    mine = free_port()
    asking = [sys.executable, "-c", ASK_FOR.format(port=mine)]
    theirs = subprocess.run(asking, capture_output=True, text=True, check=False)
    assert "no free port" in theirs.stderr, theirs.stdout
    socket.create_server((LOOPBACK, mine)).close()  # which is free for whom it was asked for


def test_of_many_ports_the_first_ones_are_let_go(monkeypatch):
    monkeypatch.setattr(process, "_HELD", deque())
    monkeypatch.setattr(process, "_MOST_HELD", 2)
    first, *_ = [free_port() for _ in range(3)]
    assert len(process._HELD) == 2
    chosen_in_turn(monkeypatch, first)
    assert free_port() == first
