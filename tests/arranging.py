"""How a run of the tests is arranged: marks, the order of files, and what was left out.

A pytest plugin, which `conftest.py` loads. `tests/README.md` says how to use the marks.
"""

import gc
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from apache import NO_APACHE_KAFKA
from tools import NO_TOOL
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

SERVERS = {
    "kafka": {
        *("apache_kafka", "broker", "guarded_kafka", "local_broker"),
        *("own_broker", "own_local_broker", "shared_apache_kafka"),
    },
    "postgres": {"database_url", "own_postgres", "postgres_server", "postgres_uri"},
}
"""The fixtures that start a server, by the mark of the tests that use them."""


SEEDED = "simulated_seeds"
"""The fixture that has seeds of the simulator."""

WHOLE_SYSTEMS = "tests/faults"

APACHE_KAFKA = re.compile(r"\[(.*\b)?apache\b.*\]$")
"""The name of a test that runs on either kind of broker ends so where it is this one."""


def marks_of(fixtures: Iterable[str]) -> set[str]:
    """The marks of a test that uses these fixtures, directly or through others."""
    used = set(fixtures)
    marks = {mark for mark, servers in SERVERS.items() if used & servers}
    return marks | {"seeds"} if SEEDED in used else marks


def one_after_the_other(name: str) -> str:
    """Whose tests stay with one worker: a file's; all that harm a whole system; and all that run on
    Apache Kafka as well as on the local broker.

    Of those that harm a system, each keeps two cores busy, and is about time: two at once would
    disturb each other. And each worker that has something for Apache Kafka starts one, which takes
    half a minute of a core until the tests are over.

    Args:
        name: of a test, its file as it is named from the project.
    """
    path = name.partition("::")[0]
    if path.startswith(f"{WHOLE_SYSTEMS}/"):
        return WHOLE_SYSTEMS
    return "on Apache Kafka" if APACHE_KAFKA.search(name) else path


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests, those that stay together and take longest first.

    What they take is what their `slow` marks say. A worker that is given something long last is
    still at it when the others have nothing left to do.
    """
    seconds: Counter[str] = Counter()
    together = {item: one_after_the_other(item.nodeid) for item in items}
    for item in items:
        mark = item.get_closest_marker("slow")
        seconds[together[item]] += mark.args[0] if mark is not None else 0
    return sorted(items, key=lambda item: -seconds[together[item]])


class Together(LoadFileScheduling):
    """Gives each worker what stays together, in the order in which it was found."""

    def _split_scope(self, nodeid: str) -> str:
        return one_after_the_other(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    """With `--dist loadfile` ours."""
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


WANTING = {NO_APACHE_KAFKA: " on Apache Kafka: ", NO_TOOL: ", not installed: "}
"""What the reason of a skip begins with → what the last line says of all of them."""


def left_out(reasons: Iterable[str]) -> str | None:
    """One line on the tests that were skipped for want of something; None: there were none."""
    reasons = list(reasons)
    parts = []
    for begin, words in WANTING.items():
        missing = Counter(r.removeprefix(begin) for r in reasons if r.startswith(begin))
        if missing:
            tests = "1 test" if missing.total() == 1 else f"{missing.total()} tests"
            parts.append(f"{tests}{words}{'; '.join(missing)}")
    return f"left out: {'; '.join(parts)}" if parts else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the servers that they use; where several workers share them, sort them."""
    for item in items:
        for mark in sorted(marks_of(getattr(item, "fixturenames", ()))):
            item.add_marker(mark)
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items)


@contextmanager
def one_loads_before_the_others(path: Path) -> Iterator[None]:
    """Of several processes that load the same files in the same order, one is a file ahead.

    In a fresh clone it compiles what the others find compiled, and where all is compiled they load
    side by side.
    """
    with path.open() as lock:
        flock(lock, LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file of tests is loaded by one of the workers before the others."""
    loads = isinstance(collector, pytest.Module) and hasattr(collector.config, "workerinput")
    with one_loads_before_the_others(collector.path) if loads else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """What is loaded for the tests stays: nobody looks through it for garbage, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


AT_MOST = "--at-most"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make again`."""
    parser.addoption(AT_MOST, type=int, help="refuse to run more tests than this")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What many tests say is not said by chance: it is not asked again.

    Raises:
        pytest.UsageError: there are more tests than the option allows.
    """
    most = session.config.getoption(AT_MOST)
    if most is not None and len(session.items) > most:
        raise pytest.UsageError(f"{len(session.items)} tests are to be run, {most} at most")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the tests that failed among others and passed alone."""
    if config.getoption(AT_MOST) is not None:
        for report in terminalreporter.getreports("passed"):
            terminalreporter.write_line(f"unsteady, to be mended: {report.nodeid}", yellow=True)


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
