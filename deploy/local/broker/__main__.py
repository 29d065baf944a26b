"""`python -m deploy.local.broker`: run the broker until a signal comes."""

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import TextIO, cast

import click
import structlog

from deploy.local.broker import DataDirectoryInUseError, serve


class _LogFile:
    """Standard error, which is often a file on the very disk that is full: then lines are lost, and
    the broker goes on."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write, if there is room."""
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        """Flush, if there is room."""
        with contextlib.suppress(OSError):
            self._file.flush()


async def _run(data_dir: Path, host: str, port: int, advertised_port: int | None) -> None:
    serving = asyncio.create_task(serve(data_dir, host, port, advertised_port))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="Where data is.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9092, show_default=True, help="Port to listen on; 0: any free one.")
@click.option("--advertised-port", type=int, help="Where clients are told to go: a proxy's port.")
def main(data_dir: Path, host: str, port: int, advertised_port: int | None) -> None:
    """Run a Kafka-protocol broker for development: one node, no replication, no transactions."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _LogFile(sys.stderr))),
    )
    try:
        asyncio.run(_run(data_dir, host, port, advertised_port))
    except (DataDirectoryInUseError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
