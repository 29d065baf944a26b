"""How long a shard is not picked while it is split: the end of its transaction, and the loading of
what is left. What moves is copied before that."""

import time
from typing import Any, Final

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.real_system import scratch_folder
from services.bench.recovery_load import import_population
from shared.store.connection import connect
from shared.store.first_touches import touch_blocks
from shared.store.growth import begin_growth, split_shard
from shared.store.snapshot import load_shard
from shared.store.splits import ask, hold

_ASKED_SECONDS: Final = 3600.0


def run(pages: int = 1_000_000, factor: int = 4) -> dict[str, Any]:
    """Split one shard of generated pages.

    Args:
        pages: of the shard; they are imported first, which takes the longest.
        factor: so many shards come of it.

    Returns:
        pages and hosts that moved, and the seconds of copying them, while the shard is picked,
        of the rest of the transaction, and of loading each of the shards that came of it.
    """
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        try:
            migrate(postgres.uri, 1)
            import_population(postgres.uri, pages, time.time(), 1)
            layout = begin_growth(postgres.uri, factor)
            with connect(postgres.uri, "bench", autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE pages, page_urls")
                # What is deleted after one is written to the log block by block: the worst moment.
                connection.execute("CHECKPOINT")
                began = time.perf_counter()
                held: list[float] = []

                def until_held() -> None:
                    _touch(postgres.uri)
                    _hold(postgres.uri)
                    held.append(time.perf_counter())

                counts = split_shard(connection, layout, 0, "bench", until_held)
                seconds = time.perf_counter() - held[0]
            loading = [_seconds_to_load(postgres.uri, shard) for shard in layout.family_of(0)]
        finally:
            postgres.stop()
    return {
        "pages": pages,
        "shards": factor,
        "pages_moved": counts.pages,
        "hosts_moved": counts.hosts,
        "copying_seconds": round(held[0] - began, 2),
        "split_seconds": round(seconds, 2),
        "split_seconds_a_million_pages": round(1e6 * seconds / pages, 2),
        "loading_seconds": loading,
    }


def _hold(database_url: str) -> None:
    with connect(database_url, "bench", autocommit=True) as connection:
        ask(connection, 0, _ASKED_SECONDS)
        hold(connection, 0)


def _touch(database_url: str) -> None:
    with connect(database_url, "bench", autocommit=True) as connection:
        touch_blocks(connection, 0, lambda: None)


def _seconds_to_load(database_url: str, shard: int) -> float:
    began = time.perf_counter()
    load_shard(database_url, shard)
    return round(time.perf_counter() - began, 2)
