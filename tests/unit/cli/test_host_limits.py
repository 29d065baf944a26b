"""`freshet hosts limit`: what is sent, and what is noted."""

import json

import pytest
from click.testing import CliRunner

from services.cli import audit, kafka
from services.cli.main import main
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS

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
