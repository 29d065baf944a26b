"""Structured logs: one line an event, JSON for machines or coloured for people."""

import io
import logging
import sys
import time
from typing import Literal, TextIO

import structlog

from shared.terminal.visible import visible

REPEAT_SECONDS = 10.0
"""A client of Kafka that tries again many times a second says the same thing once in so long; so
does an HTTP server that strangers send what is no HTTP."""


def configure_logs(form: Literal["json", "console"], level: str, **context: str) -> None:
    """Set structlog up for this process, and send the libraries' own logs through it.

    Args:
        form: `json` or `console`.
        level: the lowest level that is written.
        context: fields that every line of this process carries (worker, instance).
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.StackInfoRenderer(),
        _adder(context),
    ]
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(),
        exception_formatter=_traceback,
    )
    if form == "json":
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer()
    else:
        shared.append(_for_terminals)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # What was used before follows too: a command sets logs up anew, tests look at them.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    for library in ("aiokafka", "aiohttp"):
        handler.addFilter(Repeats(library))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Write nothing below a level; of the libraries, nothing below warnings."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for noisy in ("faust", "mode", "aiokafka", "aiohttp.access", "numba", "asyncio", "alembic"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _traceback(stream: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Write an exception as Python does, but what strangers have put into its text."""
    written = io.StringIO()
    # Plain: the rich one prints local variables, and with them secrets.
    structlog.dev.plain_traceback(written, exc_info)
    stream.write(_lines(written.getvalue()))


def _for_terminals(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Texts of strangers without what a terminal would obey, or take for another line; JSON has
    them so by itself."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = _lines(value) if name == "stack" else visible(value)
    return event


def _lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.split("\n"))


def _adder(context: dict[str, str]) -> structlog.typing.Processor:
    def add(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        for name, value in context.items():
            event.setdefault(name, value)
        return event

    return add


class Repeats(logging.Filter):
    """Lets a library's message pass once in a while, with how many like it were left out.

    Messages are alike if their text is the same before the values are put in.
    """

    def __init__(self, library: str) -> None:
        super().__init__()
        self._library = library
        self._passed: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it passes."""
        if record.name.partition(".")[0] != self._library:
            return True
        kind, now = (record.name, record.msg), time.monotonic()
        passed_at, left_out = self._passed.get(kind, (float("-inf"), 0))
        if now - passed_at < REPEAT_SECONDS:
            self._passed[kind] = (passed_at, left_out + 1)
            return False
        if len(self._passed) > 1_000:
            self._passed.clear()
        self._passed[kind] = (now, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like it)", ()
        return True
