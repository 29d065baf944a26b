"""How a run of the tests is arranged: marks, the order of files, and what was left out.

A pytest plugin, which `conftest.py` loads. `tests/README.md` says how to use the marks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from apache import NO_APACHE_KAFKA

SERVERS = {
    "kafka": {
        *("apache_kafka", "broker", "guarded_kafka", "local_broker"),
        *("own_broker", "own_local_broker"),
    },
    "postgres": {"database_url", "own_postgres", "postgres_server", "postgres_uri"},
}
"""The fixtures that start a server, by the mark of the tests that use them."""


def marks_of(fixtures: Iterable[str]) -> set[str]:
    """The marks of a test that uses these fixtures, directly or through others."""
    used = set(fixtures)
    return {mark for mark, servers in SERVERS.items() if used & servers}


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests, those of the files that take longest first; each file's stay together.

    What a file takes is what its `slow` marks say. A worker that is given a long file last is still
    at it when the others have nothing left to do.
    """
    seconds: Counter[Path] = Counter()
    for item in items:
        mark = item.get_closest_marker("slow")
        seconds[item.path] += mark.args[0] if mark is not None else 0
    return sorted(items, key=lambda item: -seconds[item.path])


def left_out(reasons: Iterable[str]) -> str | None:
    """One line on the tests that were skipped for want of Apache Kafka; None: there were none."""
    missing = Counter(
        reason.removeprefix(NO_APACHE_KAFKA)
        for reason in reasons
        if reason.startswith(NO_APACHE_KAFKA)
    )
    if not missing:
        return None
    tests = "1 test" if missing.total() == 1 else f"{missing.total()} tests"
    return f"left out: {tests} on Apache Kafka: {'; '.join(missing)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the servers that they use; where several workers share them, sort them."""
    for item in items:
        for mark in sorted(marks_of(getattr(item, "fixturenames", ()))):
            item.add_marker(mark)
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say last, after all that pytest itself says, what was left out."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    skipped = (report.longrepr for report in reporter.stats.get("skipped", ()))
    line = left_out(entry[2].removeprefix("Skipped: ") for entry in skipped)
    if line is not None:
        reporter.write_line(line, yellow=True)
