"""Asking workers' web servers, of which one knows."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shared.runtime.asking import ask, ask_each

LOOPBACK = "127.0.0.1"


@pytest.fixture
def worker():
    """A web server that knows something of a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path, _, query = self.path.partition("?")
            self.send_response(200 if path == "/pages" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"asked": query}).encode())

        def log_message(self, *_):
            pass

    with HTTPServer((LOOPBACK, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def nobody():
    """A port at which nobody listens."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        yield bound.getsockname()[1]


@pytest.mark.slow(0.5)
def test_the_first_that_knows_answers(worker, nobody):
    addresses = [f"http://{LOOPBACK}:{nobody}", f"http://{LOOPBACK}:{worker.server_port}/"]
    assert ask_each(addresses, "/pages", url="a b") == {"asked": "url=a+b"}
    assert ask_each(addresses, "/shards") is None
    assert ask_each(addresses[:1], "/pages") is None


@pytest.mark.slow(0.5)
def test_all_that_a_name_stands_for_are_asked(worker, monkeypatch):
    """As the pods behind a headless service, of which the second one knows."""
    port, asked = worker.server_port, []

    def found(host, service, **_):
        asked.append((host, service))
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", port)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (LOOPBACK, port)),
        ]

    with monkeypatch.context() as patched:
        real = socket.getaddrinfo
        patched.setattr(
            socket,
            "getaddrinfo",
            lambda host, *a, **kw: (
                found(host, *a, **kw) if host == "schedulers" else real(host, *a, **kw)
            ),
        )
        assert ask_each([f"http://schedulers:{port}"], "/pages") == {"asked": ""}
    assert asked == [("schedulers", port)]


@pytest.mark.parametrize(
    "address", ["", "schedulers", "ftp://x", "http://", "http://x:port", "http://[::1", "file:///x"]
)
def test_what_is_no_address_knows_nothing(address):
    assert ask(address, "/pages") is None
    assert ask_each([address], "/pages") is None
