"""What a page, a crawl and a signal cost, as measured: the coefficients of a plan, their file."""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

MEASURED_FILE: Final = Path(__file__).with_name("measured.yml")
"""The coefficients that are shipped."""

MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "signals": ("signal",),
    "page-signals": ("signal",),
    "crawl-requests": ("crawl",),
    "crawl-outcomes": ("crawl",),
    "page-parameters": ("crawl", "signal"),
    "host-parameters": ("crawl", "signal"),
    "demand-curves": ("shard",),
    "multipliers": ("shard",),
}
"""Topic → what its records come of: a crawl, a signal, or a second of a shard. The other topics
hold what operators and sites send now and then. `multipliers` has few records, each about all
shards: what it takes goes by the shards all the same."""

_WORKERS: Final = ("scheduler", "estimator", "ingester", "coordinator")

KNOWN: Final[Mapping[str, str]] = {
    **{f"{name}_base_bytes": f"memory of {name}, without pages" for name in _WORKERS},
    "scheduler_page_bytes": "memory of schedulers at most, while shards are loaded; a page",
    "estimator_page_bytes": "memory of estimators at most; a page of those that they keep",
    "estimator_host_bytes": "memory of estimators at most, in a refit; a host",
    "postgres_base_bytes": "memory of PostgreSQL, without connections and shared buffers",
    "postgres_connection_bytes": "memory of a connection that is PostgreSQL's own",
    "postgres_connections_a_worker": "connections to PostgreSQL, a replica of any worker",
    **{f"{name}_base_cores": f"of a core: {name}, with nothing to do" for name in _WORKERS},
    "postgres_base_cores": "of a core: PostgreSQL, with nothing to do",
    "scheduler_cores_a_page": "of a core: schedulers, with nothing to do; a page",
    "estimator_cores_a_page": "of a core: estimators, with nothing to do; a page",
    "scheduler_cores_a_crawl": "of a core: a crawl a second, its outcome included",
    "estimator_cores_a_crawl": "of a core: the outcome of a crawl a second",
    "estimator_cores_a_read": "of a core: a page a second that is read as it is named",
    "postgres_cores_a_read": "of a core: the same",
    "postgres_cores_a_crawl": "of a core: a crawl a second",
    "ingester_cores_a_signal": "of a core: a signal a second",
    "scheduler_cores_a_signal": "of a core: a signal a second",
    "estimator_cores_a_signal": "of a core: a signal a second",
    "postgres_cores_a_signal": "of a core: a signal a second",
    "coordinator_cores_a_shard": "of a core: the reports and decisions about a shard",
    "scheduler_start_seconds": "processor seconds until a scheduler without pages is ready",
    "estimator_start_seconds": "processor seconds until an estimator without pages is ready",
    "scheduler_load_seconds_a_page": "a scheduler loads a page, PostgreSQL's part included",
    "estimator_load_seconds_a_page": "an estimator loads a page, PostgreSQL's part included",
    "postgres_load_seconds_a_page": "processor seconds of PostgreSQL: both of them load a page",
    "handover_seconds": "beyond the session timeout, until others have a dead worker's shards",
    "pages_disk_bytes": "table and keys of pages with full histories, after two updates; a page",
    "urls_disk_bytes": "table and keys of generated URLs; a page",
    "keys_disk_bytes": "of those two, the keys; a page",
    "hosts_disk_bytes": "table and keys of hosts; a host",
    "observation_disk_bytes": "an observation, which is an outcome",
    "log_crawl_bytes": "PostgreSQL's log of a crawl, without images of blocks",
    "log_signal_bytes": "PostgreSQL's log of a signal, without images of blocks",
    "log_block_bytes": "PostgreSQL's log: the image of a block, after each checkpoint",
    **{
        f"{topic.replace('-', '_')}_records_a_{cause}": f"records of {topic}, a "
        + {"shard": "second and shard"}.get(cause, cause)
        for topic, causes in MESSAGES.items()
        for cause in causes
    },
    **{
        f"{topic.replace('-', '_')}_bytes": f"a record of {topic}, in batches as producers send it"
        for topic in MESSAGES
    },
}
"""Every coefficient: name → what it is. Bytes, seconds, or cores; of one of what it names."""


class Run(msgspec.Struct, frozen=True):
    """What was run to measure."""

    command: str
    date: dt.date
    machine: str
    """Its processors and memory, and what else it did."""
    commit: str


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: float
    run: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: dict[str, Run]
    coefficients: dict[str, _Value]


class Coefficient(msgspec.Struct, frozen=True):
    """A cost, and where it comes from."""

    name: str
    value: float
    run: Run

    @property
    def what(self) -> str:
        """What it is."""
        return KNOWN[self.name]

    def described(self) -> dict[str, Any]:
        """All that there is to say of it, for people and programs."""
        return {
            "name": self.name,
            "value": self.value,
            "what": self.what,
            "command": self.run.command,
            "date": self.run.date.isoformat(),
            "machine": self.run.machine,
            "commit": self.run.commit,
        }


class NotMeasured(ValueError):
    """A file of coefficients is not one; the text says why."""


Coefficients = dict[str, Coefficient]


def read_measured(file: Path = MEASURED_FILE) -> Coefficients:
    """The coefficients of a file, by name; it may have some of them only.

    Raises:
        NotMeasured: it cannot be read, names what is not known, or holds an impossible value.
    """
    try:
        found = msgspec.yaml.decode(file.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise NotMeasured(f"{file}: {error}") from error
    if faults := list(_faults(found)):
        raise NotMeasured(f"{file}: {'; '.join(faults)}")
    return {
        name: Coefficient(name, entry.value, found.runs[entry.run])
        for name, entry in found.coefficients.items()
    }


def write_measured(file: Path, coefficients: Coefficients) -> None:
    """Write them, in the order of `KNOWN`; what was run stands once."""
    runs: dict[Run, str] = {}
    for coefficient in coefficients.values():
        runs.setdefault(coefficient.run, f"run-{len(runs) + 1}")
    content = _File(
        {name: run for run, name in runs.items()},
        {
            name: _Value(coefficients[name].value, runs[coefficients[name].run])
            for name in KNOWN
            if name in coefficients
        },
    )
    file.write_bytes(msgspec.yaml.encode(content))


def _faults(found: _File) -> Iterator[str]:
    for name, entry in found.coefficients.items():
        if name not in KNOWN:
            yield f"{name} is no coefficient"
        if not 0.0 <= entry.value < float("inf"):
            yield f"{name} is {entry.value:g}"
        if entry.run not in found.runs:
            yield f"{name} is of {entry.run}, which is not among the runs"
