"""What somebody asks about pages, hosts, sources and predictions, answered from the database.

Every answer is one of dicts, lists, numbers and texts. Nothing here writes.
"""

import contextlib
import math
from itertools import chain
from operator import itemgetter
from typing import Any

import psycopg

from shared.contracts.databases import Database, Databases
from shared.contracts.identity import identify
from shared.rules.host_objectives import HostObjectives
from shared.rules.host_rules import PATIENCE, meant_host
from shared.runtime.asking import ask_each
from shared.runtime.databases import databases_of
from shared.runtime.page_class_terms import weight_of, weights_of
from shared.runtime.settings import Settings
from shared.store.asking_all import ask_all, url_of
from shared.store.connection import READING, WORKING, Limits, connect
from shared.store.explain import explain_page
from shared.store.host_listing import list_hosts, read_host
from shared.store.multipliers import last_multipliers
from shared.store.predictions import read_predicted
from shared.units import SECONDS_PER_DAY
from shared.views.calibration import report
from shared.views.explaining import explain
from shared.views.hosts import described
from shared.views.page_value import Bounds, value_curve
from shared.views.sources import senders, sources, streams


class NotKnown(LookupError):
    """There is nothing of what was asked about; the text says what to do."""


def page_answer(settings: Settings, url: str, limits: Limits = WORKING) -> dict[str, Any]:
    """Why a page was, or was not, crawled (`explain`), with the `curve` of its value.

    Args:
        settings: of the deployment; the schedulers that they name are asked what they know.
        url: of the page, canonical or not.
        limits: of the session.

    Raises:
        BadUrl: not a URL that Freshet takes.
        NotKnown: it is none of the pages.
        psycopg.Error: the database is away, or refuses.
    """
    databases = databases_of(settings)
    database = url_of(databases.of_host(identify(url).host), "explain", limits)
    known = explain_page(database, url, limits)
    if known is None:
        raise NotKnown(f"{url} is not one of the pages: add it with `freshet pages import`")
    live = ask_each(settings.scheduler_urls.split(), "/pages", url=known["url"])
    multiplier = _multiplier(databases, identify(url).host, limits)
    state = known["state"]
    state["class_weight"] = weight_of(settings.classes, state["class"])
    now = settings.clock().now()
    objective = HostObjectives(settings.objectives).of(identify(url).host)
    terms = settings.classes.get(state["class"])
    bounds = Bounds(
        max(settings.failed_retry_seconds, settings.least_interval_seconds),
        settings.least_interval_seconds,
        settings.default_max_age_days or math.inf,
        settings.least_value,
        terms.share if terms is not None else 0.0,
        terms is not None,
        settings.policy == "uniform",
    )
    answer = explain(known, live, multiplier, now, objective, bounds)
    curve = value_curve(known, answer["decision"], now, objective, bounds)
    return answer | {"now": now, "curve": curve}


def _multiplier(databases: Databases, host: str, limits: Limits) -> float | None:
    """λ₀ that was sent last; None: none was, or the home is away, which has not the host.

    Raises:
        psycopg.Error: the only database is away, or refuses.
    """
    is_elsewhere = databases.of_host(host) != databases.home
    with contextlib.suppress(*((psycopg.Error,) if is_elsewhere else ())):
        sent = last_multipliers(url_of(databases.home, "explain", limits), 1, limits=limits)
        return float(sent[0]["multiplier"]) if sent else None
    return None


def host_answer(settings: Settings, host: str, limits: Limits = WORKING) -> dict[str, Any]:
    """All rules of a host, and which of them binds (`shared.views.hosts.described`).

    Args:
        settings: of the deployment.
        host: as people write it.
        limits: of the session.

    Raises:
        BadHost: it is no authority of a URL.
        NotKnown: nobody has heard of it.
        psycopg.Error: the database is away, or refuses.
    """
    databases = databases_of(settings)

    def read(name: str) -> dict[str, Any] | None:
        return read_host(url_of(databases.of_host(name), "hosts", limits), name, limits)

    name = meant_host(host, lambda name: read(name) is not None)
    row = read(name)
    if row is None:
        raise NotKnown(f"{name} is not known: it has no page, and nobody has set a rule for it")
    return described(row, settings.default_host_crawls_per_second, settings.clock().now())


def hosts_answer(
    settings: Settings, most: int, limits: Limits = WORKING
) -> tuple[list[dict[str, Any]], dict[Database, str]]:
    """The hosts that a rule binds now, but the default: so many at most, by name. Of several
    databases, also which are away, and why: their hosts are left out.

    Raises:
        psycopg.Error: the only database, or each of them, is away or refuses.
        StoreMismatch: each of several has no tables, or other shards.
    """
    now, default = settings.clock().now(), settings.default_host_crawls_per_second

    def ask(database: Database) -> list[dict[str, Any]]:
        return list_hosts(database.url, now, PATIENCE, most, limits)

    said, away = ask_all(databases_of(settings), "hosts", ask, limits)
    rows = sorted(chain.from_iterable(said.values()), key=itemgetter("host"))
    return [described(row, default, now) for row in rows[:most]], away


def sources_answer(
    settings: Settings,
    most: int | None = None,
    seconds: float = float("inf"),
    limits: Limits = WORKING,
) -> list[dict[str, Any]]:
    """What each watched sitemap and feed costs and brings; as `shared.views.sources.sources`. Of
    several databases, what is learned is of the first one's pages."""
    with _home(settings, limits) as connection:
        return sources(connection, settings, most, seconds)


def streams_answer(
    settings: Settings, seconds: float = float("inf"), limits: Limits = WORKING
) -> list[dict[str, Any]]:
    """What each stream of events costs and brings; as `shared.views.sources.streams`. Of several
    databases, what is learned is of the first one's pages."""
    with _home(settings, limits) as connection:
        return streams(connection, settings, seconds)


def senders_answer(
    settings: Settings,
    most: int,
    shown: int,
    seconds: float = float("inf"),
    limits: Limits = WORKING,
) -> list[dict[str, Any]]:
    """Who sends the most signals, by what is learned of so many hosts; as `sources.senders`. Of
    several databases, of the first one's."""
    with _home(settings, limits) as connection:
        return senders(connection, settings, most, shown, seconds)


def _home(settings: Settings, limits: Limits) -> psycopg.Connection:
    database = url_of(databases_of(settings).home, "sources", limits)
    return connect(database, "sources", limits=limits)


def calibration_answer(
    settings: Settings, days: float, most: int, hosts: int, limits: Limits = READING
) -> dict[str, Any]:
    """Whether what was predicted of the last days' crawls came true (`calibration.report`).

    Of several databases the first is asked: which hosts are there is chance.

    Args:
        settings: of the deployment.
        days: so far back.
        most: crawls to look at, about; of more, a sample.
        hosts: of so many, those with the most crawls, there are figures.
        limits: of the session.

    Raises:
        NotKnown: no crawl was predicted.
        psycopg.Error: the database is away, or refuses.
    """
    now = settings.clock().now()
    database = url_of(databases_of(settings).home, "calibration", limits)
    since, weights = now - days * SECONDS_PER_DAY, weights_of(settings.classes)
    seen = read_predicted(database, since, most, limits, weights)
    if seen is None:
        raise NotKnown(
            f"no crawl of the last {days:g} days was predicted: a page's second crawl is the first "
            "that is; see that outcomes come in (freshet status), or ask for more days"
        )
    return report(seen, hosts, now)
