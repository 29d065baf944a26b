"""Hosts whose names end with a port that mostly goes without saying: who is meant, or nobody.

Pages of https:// on port 80, and of http:// on port 443, are of hosts that are called so.
"""

import json

import pytest
from click.testing import CliRunner
from taken_messages import Taken, publish_by

from services.cli import audit, erasing, selected_pages
from services.cli.commands import hosts
from services.cli.main import main
from shared.contracts.codec import decode, encode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.store import erased_traces, host_listing
from shared.views import answers


@pytest.fixture
def run(monkeypatch):
    """Runs a command where some hosts are known: its exit code, what it says on standard error, and
    what it has done to which hosts."""

    def invoke(*arguments, known):
        done = []

        class Publisher(Taken):
            async def send_for_host(self, topic, host, message, at=None):
                assert (topic, at is None) == (HOST_LIMITS, False)
                done.append((host, decode(HostLimit, encode(message)).host))

        def erase(_settings, what, _progress):
            done.append(what if isinstance(what, str) else what.host)
            return erasing.Erasure(7, 9)

        def listed(_url, host, _prefix, **_options):
            done.append(host)
            return iter(())

        publish_by(monkeypatch, Publisher)
        monkeypatch.setattr(audit, "note", lambda *_: None)
        monkeypatch.setattr(host_listing, "read_host", lambda _, host, *_rest: known.get(host))
        monkeypatch.setattr(erasing, "count", lambda *_: 7)
        monkeypatch.setattr(erasing, "erase_host", erase)
        monkeypatch.setattr(erasing, "purge", erase)
        monkeypatch.setattr(erased_traces, "watched_of_host", lambda *_: {})
        monkeypatch.setattr(selected_pages, "urls_under", listed)
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        return result.exit_code, result.stderr, done

    return invoke


def known(*hosts):
    return {host: {"host": host} for host in hosts}


BOTH = known("a.example", "a.example:80", "a.example:443")
SAID = {"a.example:80": "https://a.example:80", "a.example:443": "http://a.example:443"}


@pytest.mark.parametrize("written", ["a.example:80", "A.example:443"])
@pytest.mark.parametrize("command", [("block",), ("unblock",), ("limit", "1/s")])
def test_a_rule_is_set_for_the_host_that_is_called_so_where_there_is_one(run, written, command):
    name, *rest = command
    host = written.lower()
    assert run("hosts", name, written, *rest, known=BOTH) == (0, "", [(host, SAID[host])])
    alone = known("a.example")
    usual = [("a.example", "a.example")]
    assert run("hosts", name, written, *rest, known=alone) == (0, "", usual)
    assert run("hosts", name, SAID[host], *rest, known=alone)[2] == [(host, SAID[host])]


DESTROYS = [
    ("hosts", "erase", "{}", "--yes"),
    ("pages", "purge", "--host", "{}", "--yes"),
    ("pages", "remove", "--host", "{}", "--yes"),
    ("pages", "max-age", "--host", "{}", "--none", "--yes"),
]


@pytest.mark.parametrize("command", DESTROYS, ids=lambda command: " ".join(command[:2]))
def test_no_other_host_is_changed_in_the_place_of_one_that_is_not_known(run, command):
    for written, said_exactly in SAID.items():
        arguments = [word.format(written) for word in command]
        assert run(*arguments, known=BOTH)[::2] == (0, [written])
        # As after it was erased: the same command is called once more.
        code, said, done = run(*arguments, known=known("a.example"))
        assert (code, done) == (2, [])
        assert f"no host {written} is known: write a.example if" in said
        assert f"{said_exactly} if" in said
        # Who says which scheme it is says which host.
        exactly = [word.format(said_exactly) for word in command]
        assert run(*exactly, known=known("a.example"))[::2] == (0, [written])


def test_all_rules_of_a_host_are_shown_by_its_name(monkeypatch):
    asked = []

    def answer(_settings, host):
        asked.append(host)
        return {"host": host, "named_group": None}

    monkeypatch.setattr(host_listing, "read_host", lambda _, host, *_rest: BOTH.get(host))
    monkeypatch.setattr(answers, "host_answer", answer)
    monkeypatch.setattr(hosts, "_groups_of", lambda *_: ({}, None))
    done = CliRunner().invoke(main, ["hosts", "show", "a.example:443", "--json"])
    assert json.loads(done.stdout)["host"] == "a.example:443"
    assert asked == ["a.example:443"]


@pytest.mark.parametrize("host", ["a.example", *SAID, "a.example:8080", "[::1]:443"])
def test_a_host_is_erased_by_a_page_of_its_own(host):
    assert erasing.page_of_host(host).host == host
