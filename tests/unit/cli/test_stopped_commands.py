"""Commands that fail or are stopped half-way say what holds by then, and how to go on."""

import signal
import subprocess
import sys

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from click.testing import CliRunner
from taken_messages import Taken, publish_by

from services.cli import (
    audit,
    erasing,
    group_limits,
    growth,
    kafka,
    page_updates,
    selected_pages,
)
from services.cli.commands import pages
from services.cli.errors import SystemFailed, UserError
from services.cli.main import main
from shared.contracts.layout import Layout
from shared.runtime import growing
from shared.store import erased_traces, imports, splitting
from shared.store.import_rows import ImportReport


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def csv(tmp_path, monkeypatch):
    """A function: rows → the name of a file of them, which is read in blocks of some thousand."""
    publish_by(monkeypatch, Taken)

    def write(*rows):
        file = tmp_path / "pages.csv"
        file.write_text("\n".join(["url,importance", *rows, ""]))
        return str(file)

    return write


GOOD = [f"https://a.example/{number:0200},1" for number in range(100_000)]


def test_an_import_that_fails_says_what_is_published_and_which_row_it_is(csv):
    done = run("pages", "import", csv(*GOOD, "https://a.example/,much"), "--via", "kafka")
    assert done.exit_code == 2
    assert "row 100001: " in done.stderr
    assert "rows before that are in, and stay" in done.stderr
    assert "call this again" in done.stderr
    [published] = [word for word in done.stderr.split() if "," in word and word[0].isdigit()]
    assert 0 < int(published.replace(",", "")) < len(GOOD)


def test_an_import_that_fails_at_once_says_nothing_of_rows_before(csv):
    done = run("pages", "import", csv("https://a.example/,much"), "--via", "kafka")
    assert "row 1: " in done.stderr
    assert "before that" not in done.stderr


@pytest.mark.parametrize("via", ["kafka", "copy"])
def test_an_import_that_is_stopped_says_what_is_in(csv, monkeypatch, via):
    def stop(*_given, progress, **_options):
        progress(ImportReport(read=9, added=4, updated=3))
        raise KeyboardInterrupt

    async def publish(_settings, _rows, progress):
        stop(progress=progress)

    monkeypatch.setattr(imports, "import_shared", stop)
    monkeypatch.setattr(page_updates, "publish_rows", publish)
    done = run("pages", "import", csv("https://a.example/,1"), "--via", via)
    assert done.exit_code == 1
    assert "stopped: up to 7 rows before that are in, and stay" in done.stderr


TERMINATED = """
import asyncio, os, signal, sys, time
from services.cli import broker_time, page_updates
from services.cli.main import main
from shared.store import imports
from shared.store.import_rows import ImportReport

async def told_time(_settings):
    pass

def end(progress):
    progress(ImportReport(read=9, added=4, updated=3))
    os.kill(os.getpid(), signal.SIGTERM)

async def publish(_settings, _rows, progress):
    try:
        end(progress)
        await asyncio.sleep(60)
    finally:
        print("closed")

def copy(*_given, progress, **_options):
    end(progress)
    time.sleep(60)

broker_time._measured, page_updates.publish_rows, imports.import_shared = told_time, publish, copy
signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
main(["pages", "import", sys.argv[2], "--via", sys.argv[3]])
"""


@pytest.mark.parametrize(
    ("interrupts", "via"),
    # What a shell starts in the background ignores Ctrl-C.
    [("default_int_handler", "kafka"), ("default_int_handler", "copy"), ("SIG_IGN", "kafka")],
)
def test_what_a_supervisor_stops_says_what_is_in(csv, interrupts, via):
    arguments = [sys.executable, "-c", TERMINATED, interrupts, csv("https://a.example/,1"), via]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done
    assert "stopped: up to 7 rows before that are in, and stay" in done.stderr
    assert ("closed" in done.stdout) is (via == "kafka")


def test_how_the_process_ends_is_its_own_again_after_a_command(csv):
    before = signal.getsignal(signal.SIGTERM)
    run("pages", "import", csv("https://a.example/,1"), "--via", "kafka")
    assert signal.getsignal(signal.SIGTERM) is before


def test_rows_that_are_refused_fail_the_import_and_the_others_are_in(csv):
    file = csv("https://a.example/,1", "nowhere,1", "https://a.example/2,-1")
    done = run("pages", "import", file, "--via", "kafka")
    assert done.exit_code == 1
    assert "published  1" in done.stdout
    assert "row 2: " in done.stdout
    assert "2 of 3 rows were refused; the others are in" in done.stderr
    done = run("pages", "import", csv("nowhere,1"), "--via", "kafka")
    assert done.exit_code == 1
    assert "1 of 1 rows were refused" in done.stderr
    assert run("pages", "import", csv("https://a.example/,1"), "--via", "kafka").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(("hosts", "erase", "a.example"), "erase_host"), (("pages", "purge"), "purge")],
)
def test_an_erasure_that_is_stopped_says_how_far_it_is(monkeypatch, arguments, name):
    def stop(_settings, _what, progress):
        progress(5_000, 12_000)
        raise KeyboardInterrupt

    monkeypatch.setattr(erasing, "count", lambda *_: 12_000)
    monkeypatch.setattr(erasing, name, stop)
    monkeypatch.setattr(erased_traces, "watched_of_host", lambda *_: {})
    monkeypatch.setattr(audit, "note", lambda *_: None)
    done = run(*arguments, "--yes")
    assert done.exit_code == 1
    assert "5,000 of 12,000 pages are erased; the same command goes on" in done.stderr


OF_SEVERAL = [("remove",), ("max-age", "--none")]


@pytest.mark.parametrize("command", OF_SEVERAL, ids=" ".join)
@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (KeyboardInterrupt(), 1, "stopped: up to 20 pages are asked for"),
        (TopicAuthorizationFailedError(), 2, "up to 20 pages are asked for"),
        (SystemFailed("nothing is acknowledged"), 1, "acknowledged. Up to 20 pages are asked for"),
    ],
)
def test_what_is_asked_for_is_said_where_the_rest_is_not(
    monkeypatch, command, error, exit_code, said
):
    class Publisher(Taken):
        parts = 0

        async def queue_batches(self, _messages):
            self.parts += 1
            if self.parts == 2:
                raise error

    def parts(*_where, **_of):
        yield from ([f"https://a.example/{part}/{number}" for number in range(10)] for part in "ab")

    publish_by(monkeypatch, Publisher)
    monkeypatch.setattr(selected_pages, "urls_under", parts)
    name, *options = command
    done = run("pages", name, "--host", "a.example", *options, "--yes")
    assert done.exit_code == exit_code
    assert said in done.stderr
    assert "call this again, for the others" in done.stderr
    assert "asked for" not in done.stdout


def test_what_fails_before_anything_is_asked_for_says_nothing_of_the_kind(monkeypatch):
    def refused(*_where, **_of):
        raise UserError("the database is away")
        yield

    publish_by(monkeypatch, Taken)
    monkeypatch.setattr(selected_pages, "urls_under", refused)
    done = run("pages", "remove", "--host", "a.example", "--yes")
    assert done.exit_code == 2
    assert "asked for" not in done.output


@pytest.fixture
def grow(monkeypatch):
    """A function: what is interrupted → the answer of `shards grow`."""

    async def passes(*_):
        """All that is looked at before is as it should be."""

    def interrupted(*_given, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(kafka, "require_broker", lambda _: None)
    monkeypatch.setattr(splitting, "require_can_grow", lambda *_: {})
    monkeypatch.setattr(splitting, "prepare", lambda *_: Layout(8, 4, frozenset()))
    monkeypatch.setattr(growing, "require_partitions", passes)
    monkeypatch.setattr(growing, "add_partitions", passes)
    monkeypatch.setattr(group_limits, "require_room", passes)
    monkeypatch.setattr(growth, "require_order", passes)

    def invoke(module, name):
        monkeypatch.setattr(module, name, interrupted)
        return run("shards", "grow", "8", "--yes")

    return invoke


def test_a_growth_that_is_stopped_says_that_there_is_no_way_back(grow):
    done = grow(splitting, "let_be_known")
    assert done.exit_code == 1
    assert "8 shards are noted, and there is no way back" in done.stderr
    assert "call `freshet shards grow 8` again" in done.stderr


def test_a_growth_that_is_stopped_before_it_is_noted_says_nothing_of_the_kind(grow):
    done = grow(growth, "require_order")
    assert done.exit_code == 1
    assert "noted" not in done.output


def test_the_help_says_when_an_import_fails():
    assert "Then it exits 1" in " ".join((pages.import_.help or "").split())
