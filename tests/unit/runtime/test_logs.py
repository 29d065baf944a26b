"""Logs: one JSON object a line, with the worker's name, and the libraries' own lines too."""

import io
import json
import logging

import pytest
import structlog
from structlog.testing import capture_logs

from shared.runtime import logs
from shared.runtime.logs import configure_logs


@pytest.fixture
def restore():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(form, level, say, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    configure_logs(form, level, worker="ingester", instance="i-1")
    say()
    return stream.getvalue().splitlines()


def test_every_line_is_an_object_that_says_who_when_and_what(restore, monkeypatch):
    def say():
        structlog.get_logger("test").warning("something happened", count=3)
        logging.getLogger("library").error("its %s", "words")
        try:
            int("why")
        except ValueError:
            structlog.get_logger("test").exception("failed")

    first, second, third = [json.loads(line) for line in lines("json", "info", say, monkeypatch)]
    assert first | {"at": ""} == {
        "event": "something happened",
        "count": 3,
        "level": "warning",
        "worker": "ingester",
        "instance": "i-1",
        "at": "",
    }
    assert (second["event"], second["logger"]) == ("its words", "library")
    assert "ValueError: invalid literal" in third["exception"]


def test_lower_levels_are_left_out(restore, monkeypatch):
    def say():
        structlog.get_logger("test").info("detail")
        logging.getLogger("aiokafka").info("chatter")

    assert lines("console", "warning", say, monkeypatch) == []


def test_loggers_that_were_used_follow_when_logs_are_set_up_anew(restore, monkeypatch):
    logger = structlog.get_logger("test")
    assert lines("json", "info", lambda: logger.info("first"), monkeypatch)
    assert lines("json", "error", lambda: logger.warning("second"), monkeypatch) == []
    third = lines("console", "info", lambda: logger.info("third"), monkeypatch)
    assert ["third" in line and "{" not in line for line in third] == [True]
    with capture_logs() as captured:
        logger.info("fourth")
    assert [line["event"] for line in captured] == ["fourth"]
    structlog.reset_defaults()
    with capture_logs() as captured:
        logger.info("fifth")
    assert [line["event"] for line in captured] == ["fifth"]


HOSTILE = "\x1b]0;taken\x07 \x9b2J\u202e\r"
FORGED = f"{HOSTILE}\n[info] all is well"


@pytest.mark.parametrize("form", ["json", "console"])
def test_what_strangers_write_moves_no_terminal_and_is_no_line_of_its_own(
    restore, monkeypatch, form
):
    def fail():
        raise ValueError(f"{HOSTILE}\nand more")

    def say():
        logger = structlog.get_logger("test")
        logger.warning(FORGED, url=FORGED)
        try:
            fail()
        except ValueError:
            logger.exception("failed", url=HOSTILE)
            logging.getLogger("library").exception("its %s", FORGED)
        logger.info("here", stack_info=True)

    said = lines(form, "info", say, monkeypatch)
    assert "".join(said).isprintable()
    assert not [line for line in said if line.startswith("[info] all is well")]
    assert "\\u202e" in said[0]
    assert any("ValueError: \\" in line for line in said)
    if form == "console":
        # Still for people: a line each.
        assert "and more" in said
        assert [line for line in said if line.strip().startswith("File ")]


def test_requests_that_are_none_do_not_fill_the_log(restore, monkeypatch):
    def say():
        for number in range(100):
            try:
                int("Bad status line")
            except ValueError:
                logger = logging.getLogger("aiohttp.server")
                logger.exception("Error handling request from %s", f"192.0.2.{number}")

    [line] = lines("json", "info", say, monkeypatch)
    assert "192.0.2.0" in line


def test_a_library_that_repeats_itself_is_heard_once_in_a_while(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    repeats = logs.Repeats("aiokafka")

    def passes(name, message, *values):
        record = logging.LogRecord(name, logging.ERROR, "", 0, message, values, None)
        return record.getMessage() if repeats.filter(record) else None

    assert passes("aiokafka.client", "node %s is away", 1) == "node 1 is away"
    assert [passes("aiokafka.client", "node %s is away", 1) for _ in range(3)] == [None] * 3
    assert passes("aiokafka.client", "another") == "another"
    assert passes("shared.runtime", "node %s is away", 1) == "node 1 is away"
    assert passes("shared.runtime", "node %s is away", 1) == "node 1 is away"
    now[0] += logs.REPEAT_SECONDS
    assert passes("aiokafka.client", "node %s is away", 2) == "node 2 is away (3 more like it)"
    now[0] += logs.REPEAT_SECONDS
    assert passes("aiokafka.client", "node %s is away", 2) == "node 2 is away"
