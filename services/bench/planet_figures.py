"""What a page, a crawl and a signal cost, from what was seen of two machines. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from services.bench.planet_loop import Machine, Window
from services.plan.coefficients import MESSAGES

LARGEST_IMAGE: Final = 8192.0 + 64.0
"""Of a block in PostgreSQL's log, bytes: whole, and what is said of it."""

_BY_PAGES: Final = ("scheduler", "estimator")
_BY_CRAWLS: Final = ("scheduler", "estimator", "postgres")
_BY_SIGNALS: Final = ("ingester", *_BY_CRAWLS)
_ALL: Final = ("coordinator", *_BY_SIGNALS)
_DIGITS: Final = 4


def costs(small: Machine, large: Machine) -> dict[str, float]:
    """The coefficients that a small and a large machine tell, by name.

    A cost is a difference over a difference: that of a crawl between the windows with its own
    crawls and with more, that of a signal and that of a page between the machines. What is left of
    a machine at work is what it costs to be there. What comes out below nothing, by other work on
    the machine, is nothing.

    Args:
        small: with few pages and many signals.
        large: with many pages and few signals.
    """
    found = dict(_memory(small, large))
    found |= dict(_cores(small, large))
    found |= dict(_start(small, large))
    found["hosts_disk_bytes"] = large.host_bytes
    found |= _log(large.windows)
    found |= dict(_messages(large))
    return {name: rounded(max(value, 0.0)) for name, value in found.items()}


def rounded(value: float) -> float:
    """To as many digits as a measurement has."""
    return float(f"{value:.{_DIGITS}g}")


def _memory(small: Machine, large: Machine) -> Iterator[tuple[str, float]]:
    pages = large.pages - small.pages
    for name in _BY_PAGES:
        page = max((large.memory[name] - small.memory[name]) / pages, 0.0)
        yield f"{name}_page_bytes", page
        yield f"{name}_base_bytes", small.memory[name] - page * small.pages
    for name in ("ingester", "coordinator"):
        yield f"{name}_base_bytes", max(small.memory[name], large.memory[name])
    yield "postgres_base_bytes", max(small.memory["postgres"], large.memory["postgres"])
    yield "postgres_connection_bytes", max(small.connection_bytes, large.connection_bytes)
    yield "postgres_connections_a_worker", large.connections / len(large.memory)


def _cores(small: Machine, large: Machine) -> Iterator[tuple[str, float]]:
    more, none, still = large.windows["more"], large.windows["none"], small.windows["none"]
    own, other = large.windows["own"], small.windows["own"]
    for name in _ALL:
        page = crawl = signal = 0.0
        if name in _BY_PAGES:
            page = (none.cores[name] - still.cores[name]) / (large.pages - small.pages)
            page = max(page, 0.0)
            yield f"{name}_cores_a_page", page
        if name in _BY_CRAWLS:
            crawl = (more.cores[name] - own.cores[name]) / (more.crawls - own.crawls)
            crawl = max(crawl, 0.0)
            yield f"{name}_cores_a_crawl", crawl
        if name in _BY_SIGNALS:
            rest = other.cores[name] - own.cores[name] - crawl * (other.crawls - own.crawls)
            rest += page * (large.pages - small.pages)
            signal = max(rest / (other.signals - own.signals), 0.0)
            yield f"{name}_cores_a_signal", signal
        work = page * large.pages + crawl * own.crawls + signal * own.signals
        yield f"{name}_base_cores", own.cores[name] - work


def _start(small: Machine, large: Machine) -> Iterator[tuple[str, float]]:
    """Processor seconds: those of the wall are the same where nothing else runs."""
    pages = large.pages - small.pages
    page = {
        name: max((large.start_seconds[name] - small.start_seconds[name]) / pages, 0.0)
        for name in (*_BY_PAGES, "postgres")
    }
    yield "postgres_load_seconds_a_page", page["postgres"]
    for name in _BY_PAGES:
        yield f"{name}_load_seconds_a_page", page[name] + page["postgres"]
        yield f"{name}_start_seconds", small.start_seconds[name] - page[name] * small.pages


def _log(windows: Mapping[str, Window]) -> dict[str, float]:
    """PostgreSQL's log: the size of an image from two windows that differ in little else."""
    early, own, more = (windows[name] for name in ("after a checkpoint", "own", "more"))
    images = early.log_images - own.log_images
    # Few of them more say nothing of their size.
    told = images > 0.1 * own.crawls
    image = (early.log_bytes - own.log_bytes) / images if told else LARGEST_IMAGE
    image = min(max(image, 0.0), LARGEST_IMAGE)

    def without(window: Window) -> float:
        return window.log_bytes - image * window.log_images

    crawl = max((without(more) - without(own)) / (more.crawls - own.crawls), 0.0)
    signal = (without(own) - crawl * own.crawls) / own.signals
    return {"log_block_bytes": image, "log_crawl_bytes": crawl, "log_signal_bytes": signal}


def _messages(large: Machine) -> Iterator[tuple[str, float]]:
    own, more, none = (large.windows[name] for name in ("own", "more", "none"))
    for topic, causes in MESSAGES.items():
        name, crawl = topic.replace("-", "_"), 0.0
        if "crawl" in causes:
            crawl = (more.records[topic] - own.records[topic]) / (more.crawls - own.crawls)
            crawl = max(crawl, 0.0)
            yield f"{name}_records_a_crawl", crawl
        if "signal" in causes:
            left = own.records[topic] - none.records[topic] - crawl * (own.crawls - none.crawls)
            yield f"{name}_records_a_signal", left / (own.signals - none.signals)
        if "shard" in causes:
            yield f"{name}_records_a_shard", own.records[topic] / large.shards
        yield f"{name}_bytes", own.sizes[topic] / max(own.records[topic], 1e-9)


def seen(machine: Machine) -> dict[str, Any]:
    """What a machine used with its own crawls, for people and programs."""
    window = machine.windows["own"]
    return {
        "pages": machine.pages,
        "shards": machine.shards,
        "crawls_per_second": rounded(window.crawls),
        "signals_per_second": rounded(window.signals),
        "setup_seconds": dict(machine.setup_seconds),
        "start_processor_seconds": _each(machine.start_seconds),
        "memory_bytes": dict(machine.memory),
        "cores": _each(window.cores),
        "postgres_log_bytes_per_second": rounded(window.log_bytes),
        "postgres_log_bytes_per_second_after_a_checkpoint": rounded(
            machine.windows["after a checkpoint"].log_bytes
        ),
        "kafka_bytes_per_second": rounded(sum(window.sizes.values())),
    }


def _each(values: Mapping[str, float]) -> dict[str, float]:
    return {name: rounded(value) for name, value in values.items()}
