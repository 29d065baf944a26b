"""`freshet hosts limit|block`: what is sent, what is noted, and what is said of unknown hosts."""

import json

import psycopg
import pytest
from click.testing import CliRunner

from services.cli import audit, kafka
from services.cli.main import main
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.store import host_listing

HOST = "a.example"


@pytest.fixture
def run(monkeypatch):
    """Runs the command; its answer, the messages, and the notes."""

    def invoke(*arguments):
        sent, noted = [], []

        async def publish(_settings, topic, host, message):
            assert (topic, host) == (HOST_LIMITS, HOST)
            sent.append(message)

        monkeypatch.setattr(kafka, "publish_for_host", publish)
        monkeypatch.setattr(audit, "note", lambda _, *noting: noted.append(noting))
        result = CliRunner().invoke(main, ["hosts", "limit", *arguments, "--json"])
        assert result.exit_code == 0, result.output
        assert {(about, host) for about, host, _ in noted} == {("host", HOST)}
        said = json.loads(result.output)
        assert said.pop("host") == HOST
        return said, sent, [change for _, _, change in noted]

    return invoke


@pytest.mark.parametrize(("written", "rate"), [("0.5/s", 0.5), ("default", None), ("0", 0.0)])
def test_a_rate_alone_is_about_the_limit_alone(run, written, rate):
    said = {"max_crawls_per_second": rate}
    message = HostLimit(HOST, max_crawls_per_second=rate, only="limit")
    assert run("A.example", written) == (said, [message], [said])


@pytest.mark.parametrize(("written", "number"), [("1", 1), ("1000", 1000), ("none", None)])
def test_a_bound_of_open_requests_alone_leaves_the_limit_as_it_is(run, written, number):
    said = {"max_open_requests": number}
    message = HostLimit(HOST, max_open_requests=number, only="open")
    assert run("A.example", "--open", written) == (said, [message], [said])


def test_both_are_said_each_by_a_message_of_its_own(run):
    said, sent, noted = run(HOST, "2/s", "--open", "3")
    assert said == {"max_crawls_per_second": 2.0, "max_open_requests": 3}
    assert sent == [
        HostLimit(HOST, max_crawls_per_second=2.0, only="limit"),
        HostLimit(HOST, max_open_requests=3, only="open"),
    ]
    assert noted == [{"max_crawls_per_second": 2.0}, {"max_open_requests": 3}]


@pytest.fixture
def say(monkeypatch):
    """Runs a command where hosts are known, or cannot be asked for: its exit code, what it says on
    standard error, and about which hosts it has sent something."""

    def invoke(*arguments, known=()):
        sent = []

        async def publish(_settings, _topic, host, _message):
            sent.append(host)

        def read(_url, host, _limits):
            if isinstance(known, Exception):
                raise known
            # What is sent makes it known.
            return host if host in known or sent else None

        monkeypatch.setattr(kafka, "publish_for_host", publish)
        monkeypatch.setattr(audit, "note", lambda *_: None)
        monkeypatch.setattr(host_listing, "read_host", read)
        result = CliRunner().invoke(main, ["hosts", *arguments])
        return result.exit_code, result.stderr, sent

    return invoke


COMMANDS = [("limit", "1/s"), ("limit", "--open", "2"), ("block",), ("unblock",)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_host_of_which_there_is_nothing_is_named(say, command):
    action, *rest = command
    code, said, sent = say(action, "exmaple.com", *rest, known=["example.com"])
    assert (code, sent) == (0, ["exmaple.com"])
    assert "no page of exmaple.com is known" in said
    for known in (["example.com"], psycopg.OperationalError("away")):
        code, said, sent = say(action, "example.com", *rest, known=known)
        assert (code, sent) == (0, ["example.com"])
        assert "is known" not in said


@pytest.mark.parametrize("written", ["example.com:443", "EXAMPLE.com:80", "example.com"])
def test_the_port_of_either_scheme_is_no_part_of_the_name(say, written):
    assert say("block", written, known=["example.com"]) == (0, "", ["example.com"])
    assert say("block", "example.com:8443")[2] == ["example.com:8443"]
