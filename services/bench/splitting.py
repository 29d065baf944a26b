"""How long a shard is not picked while it is split: the end of its transaction, and the loading of
what is left. What moves is copied before that."""

import re
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import psycopg

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.processor_time import usage_with_children
from services.bench.real_system import scratch_folder
from services.bench.recovery_load import import_population
from services.scheduler.flow.loading import build_shard, shard_rules
from shared.runtime.clock import SystemClock
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.first_touches import touch_blocks
from shared.store.growth import begin_growth, split_shard
from shared.store.moving import tidy
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.splits import ask, hold

_ASKED_SECONDS: Final = 3600.0

_STEPS: Final = {
    "deleting_pages": r"DELETE FROM pages_\d+ AS page",
    "looking_for_changes": r"SELECT moved\.shard",
    "copying_again": r"INSERT INTO page|DELETE FROM page",
    "attaching": r"ALTER TABLE",
    "hosts": r"UPDATE hosts|INSERT INTO host_moves|SELECT host_id|ANALYZE host_moves",
}
"""Statements of the held part, by how they begin; the first that fits."""


class _Timed:
    """A connection that notes how long its statements take."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self.seconds: dict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any, **options: Any) -> Any:
        """As psycopg's."""
        began = time.perf_counter()
        try:
            return self._connection.execute(statement, *values, **options)
        finally:
            fits = (step for step, begin in _STEPS.items() if re.match(begin, statement.strip()))
            self.seconds[next(fits, "other")] += time.perf_counter() - began


def run(pages: int = 1_000_000, factor: int = 4) -> dict[str, Any]:
    """Split one shard of generated pages.

    Args:
        pages: of the shard; they are imported first, which takes the longest.
        factor: so many shards come of it.

    Returns:
        pages and hosts that moved, and the seconds of copying them, while the shard is picked, of
        the rest of the transaction and its steps, of loading each of the shards that came of it, by
        the scheduler and by the estimator, and of tidying up, while they are picked. And the whole
        pause a million pages: schedulers and estimators load what is left at the same time. Where
        the machine has other things to do, processor seconds of the server and of this process say
        more.
    """
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        try:
            migrate(postgres.uri, 1)
            import_population(postgres.uri, pages, time.time(), 1)
            _load(postgres.uri, 0)  # Compiles what loading needs.
            load_for_learning(postgres.uri, 0)
            layout = begin_growth(postgres.uri, factor)
            with connect(postgres.uri, "bench", autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE pages, page_urls")
                # What is deleted after one is written to the log block by block: the worst moment.
                connection.execute("CHECKPOINT")
                began = time.perf_counter()
                held: list[_Moment] = []
                timed = _Timed(connection)
                splitting: Any = timed

                def until_held() -> None:
                    _touch(postgres.uri)
                    _hold(postgres.uri)
                    timed.seconds.clear()
                    held.append(_Moment.of(postgres))

                counts = split_shard(splitting, layout, 0, "bench", until_held)
                split = _Moment.of(postgres).since(held[0])
                seconds = split.wall
                family = layout.family_of(0)
                loaded = [_spent(postgres, _load, shard) for shard in family]
                learned = [_spent(postgres, load_for_learning, shard) for shard in family]
                loading = [round(spent.wall, 2) for spent in loaded]
                learning = [round(spent.wall, 2) for spent in learned]
                tidying = _seconds_of(tidy, connection, layout, 0)
        finally:
            postgres.stop()
    return {
        "pages": pages,
        "shards": factor,
        "pages_moved": counts.pages,
        "hosts_moved": counts.hosts,
        "copying_seconds": round(held[0].wall - began, 2),
        "split_seconds": round(seconds, 2),
        "split_seconds_a_million_pages": round(1e6 * seconds / pages, 2),
        "steps": _steps(timed.seconds, seconds),
        "loading_seconds": loading,
        "estimator_loading_seconds": learning,
        "tidying_seconds": tidying,
        "pause_seconds_a_million_pages": round(
            1e6 * (seconds + max(*loading, *learning)) / pages, 2
        ),
        "split_processor_seconds": round(split.processor, 2),
        "loading_processor_seconds": [round(spent.processor, 2) for spent in loaded],
        "estimator_loading_processor_seconds": [round(spent.processor, 2) for spent in learned],
    }


def _steps(found: dict[str, float], seconds: float) -> dict[str, float]:
    rest = {"committing": seconds - sum(found.values())}
    return {step: round(took, 3) for step, took in (found | rest).items()}


def _hold(database_url: str) -> None:
    with connect(database_url, "bench", autocommit=True) as connection:
        ask(connection, 0, _ASKED_SECONDS)
        hold(connection, 0)


def _touch(database_url: str) -> None:
    with connect(database_url, "bench", autocommit=True) as connection:
        touch_blocks(connection, 0, lambda: None)


def _load(database_url: str, shard: int) -> None:
    """As a scheduler does."""
    build_shard(load_shard(database_url, shard), shard_rules(load_settings(), SystemClock()))


class _Moment(NamedTuple):
    """Seconds by the wall, and by the processors of the server and this process."""

    wall: float
    processor: float

    @classmethod
    def of(cls, postgres: EmbeddedPostgres) -> "_Moment":
        """Now."""
        server = postgres.process_id
        spent = usage_with_children(server).seconds if server is not None else 0.0
        return cls(time.perf_counter(), spent + time.process_time())

    def since(self, before: "_Moment") -> "_Moment":
        """What has passed."""
        return _Moment(self.wall - before.wall, self.processor - before.processor)


def _spent(
    postgres: EmbeddedPostgres, function: Callable[[str, int], object], shard: int
) -> _Moment:
    began = _Moment.of(postgres)
    function(postgres.uri, shard)
    return _Moment.of(postgres).since(began)


def _seconds_of(function: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    function(*arguments)
    return round(time.perf_counter() - began, 2)
