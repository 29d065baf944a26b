"""The processes of the demonstration: those of `freshet run`, two workers more, and the crawler."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.process import free_port
from deploy.local.supervisor import ChildSpec
from services.demo.website import FLEET, LOOPBACK, POLLER
from services.run.options import RunOptions
from services.run.stack import BROKER_VARIABLE, DATABASE_VARIABLES, Stack
from shared.runtime.setting_kinds import ENV_PREFIX
from shared.runtime.settings import FILE_VARIABLE
from shared.units import SECONDS_PER_DAY

PARTITIONS: Final = 4

HASTY: Final = {
    # The web is on this machine.
    "FRESHET_ALLOW_PRIVATE_HOSTS": "true",
    "FRESHET_POLLER_USER_AGENT": POLLER,
    # And it lives a hundred times as fast as the real one.
    "FRESHET_LEAST_INTERVAL_SECONDS": "2",
    "FRESHET_FAILED_RETRY_SECONDS": "4",
    "FRESHET_REQUEST_TIMEOUT_SECONDS": "20",
    "FRESHET_SIGNAL_DEBOUNCE_SECONDS": "0.5",
    "FRESHET_DEFAULT_HOST_CRAWLS_PER_SECOND": "2",
    "FRESHET_POLLER_HOST_GAP_SECONDS": "0.5",
    "FRESHET_PRIOR_REFIT_DAYS": repr(10.0 / SECONDS_PER_DAY),
}
"""Settings of the workers."""

SHORTEST_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 20.0
"""Between two polls of one file."""

POLLS: Final = 4
"""A file is read so often at least while one watches: pages that came late are not to be missed."""

CRAWLER: Final = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": "64",
    "DOWNLOAD_TIMEOUT": "10",
    "FRESHET_REDIRECTED": "true",
}
"""Settings of Scrapy, for which all sites of one address are one site."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a demonstration was asked for."""

    data_dir: Path
    seconds: float
    sites: int
    pages: int
    """Of each site."""
    crawls_per_second: float
    seed: int


class DemoSystem:
    """Where everything is, and what each process is told."""

    def __init__(self, options: DemoOptions) -> None:
        """Make it. What this process's environment says of other systems is forgotten: the
        demonstration must not touch them, and needs nothing of them."""
        own = {BROKER_VARIABLE, *DATABASE_VARIABLES}
        for name in [n for n in os.environ if n.startswith(ENV_PREFIX) or n in own]:
            del os.environ[name]
        self._receiver_port = free_port()
        self.stack = Stack(
            RunOptions(
                world="none",
                data_dir=options.data_dir,
                partitions=PARTITIONS,
                begins_empty=True,
            )
        )
        self.copies = self.stack.directory / "copies"
        longest = min(LONGEST_SECONDS, options.seconds / POLLS)
        os.environ |= HASTY | {
            FILE_VARIABLE: os.devnull,
            "FRESHET_POLLER_LONGEST_SECONDS": repr(longest),
            "FRESHET_POLLER_SHORTEST_SECONDS": repr(min(SHORTEST_SECONDS, longest)),
            "FRESHET_RECEIVER_PORT": str(self._receiver_port),
        }

    @property
    def receiver(self) -> str:
        """Where sites ping."""
        return f"http://{LOOPBACK}:{self._receiver_port}"

    def processes(self) -> list[ChildSpec]:
        """The workers and the crawler."""
        return [*self.stack.workers(("receiver", "poller")), self._crawler()]

    def _crawler(self) -> ChildSpec:
        settings = self.stack.settings
        command = [sys.executable, "-m", "scrapy_freshet", "crawl", "--private-addresses"]
        command += ["--files", str(self.copies), "--user-agent", FLEET]
        for name, value in CRAWLER.items():
            command += ["--set", f"{name}={value}"]
        return ChildSpec(
            name="crawler",
            argv=command,
            env={
                BROKER_VARIABLE: settings.kafka_bootstrap_servers,
                "FRESHET_TOPIC_PREFIX": settings.topic_prefix,
            },
        )
