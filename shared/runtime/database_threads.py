"""Threads enough that a database which hangs leaves some for those who ask another one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from shared.contracts.databases import Databases

THREADS: Final = 12
"""Of each database: a worker has fewer questions to one at a time."""


def have_threads_for(databases: Databases) -> None:
    """Give the running loop threads for `asyncio.to_thread`, where there are several databases.

    Python's own pool has some more threads than the machine has cores, and a database that hangs
    keeps each thread that asks it.
    """
    if databases.are_several:
        pool = ThreadPoolExecutor(THREADS * (1 + len(databases.each)), "databases")
        asyncio.get_running_loop().set_default_executor(pool)
