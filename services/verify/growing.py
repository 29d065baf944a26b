"""The fault that is none: the number of shards grows while everything runs.

The command is killed in the middle, as people and machines end commands, and called again. Crawlers
and pingers learn of the new partitions some time later. Nothing is down meanwhile, and nothing that
comes late or twice is excused by it.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import numpy as np

from deploy.local.supervisor import python_argv
from services.verify.crawlers import Crawlers
from services.verify.harm import Harm
from services.verify.poison import Poison
from services.verify.sending import Sender
from services.verify.system import System
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.kafka import topic_partitions

FACTORS: Final = (4, 2)
"""So many times as many shards, the first time and the second."""

KILLED_AFTER_SECONDS: Final = (1.0, 6.0)
AGAIN_SECONDS: Final = (0.5, 2.0)
KNOWN_SECONDS: Final = 1.0
"""The crawlers learn of new partitions within this."""

UNHEARD_SECONDS: Final = 3.0
"""Producers go on with what they know of partitions for so long."""

LOOK_SECONDS: Final = 0.3

PATIENCE_SECONDS: Final = 180.0


class Growth:
    """Lets the number of shards grow, twice at most."""

    def __init__(
        self, system: System, sender: Sender, crawlers: Crawlers, poison: Poison, seed: int
    ) -> None:
        self._system = system
        self._sender = sender
        self._crawlers = crawlers
        self._poison = poison
        self._rng = np.random.default_rng([seed, 24])
        self._growths = 0

    async def grow(self) -> Harm:
        """Let it grow, killing the command once.

        Raises:
            RuntimeError: the command fails.
        """
        system = self._system
        if self._growths == len(FACTORS):
            return Harm("the shards have grown enough", frozenset())
        before, after = system.shards, FACTORS[self._growths] * system.shards
        self._growths += 1
        began = time.monotonic()
        patience = float(self._rng.uniform(*KILLED_AFTER_SECONDS))
        done = await self._run(after, patience)
        killed = "" if done else f", the command killed after {patience:.1f} s"
        if not done:
            await asyncio.sleep(float(self._rng.uniform(*AGAIN_SECONDS)))
            await self._run(after, PATIENCE_SECONDS)
        seconds = time.monotonic() - began
        await self._crawlers.read_more(after)
        await asyncio.sleep(UNHEARD_SECONDS)
        system.shards = self._sender.partitions = after
        self._poison.settings = system.settings
        return Harm(f"{before} → {after} shards in {seconds:.1f} s{killed}", frozenset())

    async def _run(self, shards: int, seconds: float) -> bool:
        """Call the command; whether it came to its end before it was killed.

        Raises:
            RuntimeError: it fails.
        """
        log = Path(self._system.logs, "grow.log")
        settings = self._system.settings
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
            "DATABASE_URL": self._system.database_url,
            "FRESHET_PARTITIONS": str(settings.partitions),
            "FRESHET_REPLICATION_FACTOR": str(settings.replication_factor),
        }
        argv = python_argv("-m", "services.cli.main", "shards", "grow", str(shards), "--json")
        argv += ["--yes", "--known-seconds", str(KNOWN_SECONDS)]
        with await asyncio.to_thread(log.open, "ab") as output:
            process = await asyncio.create_subprocess_exec(
                *argv, env=environment, stdout=output, stderr=output
            )
        ending = asyncio.create_task(process.wait())
        until = time.monotonic() + seconds
        while not ending.done() and time.monotonic() < until:
            await asyncio.wait([ending], timeout=LOOK_SECONDS)
            # The crawlers hear of new partitions while shards are split.
            there = await topic_partitions(settings, [CRAWL_REQUESTS])
            if len(there[CRAWL_REQUESTS.name]) == shards:
                await self._crawlers.read_more(shards)
        if not ending.done():
            process.kill()
            await ending
            return False
        if process.returncode:
            raise RuntimeError(f"`freshet shards grow` failed; see {log}")
        return True
