"""Reading the sources of watched sites whose time has come.

What a source brings is published first; where it stands is stored when the broker has it all. Who
is killed in between reads it again: a page that is there is left alone, and a repeated signal
counts once.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, Protocol
from urllib.parse import urljoin

import psycopg
import structlog

from services.poller import metrics
from services.poller.rhythm import (
    interval_by_value,
    longest_wait,
    next_interval,
    pause_of_host,
    wait_after_failure,
)
from services.poller.sites.entries import BadDocument
from services.poller.sites.feed_process import FeedProcess
from services.poller.sites.fetching import Got, Same, fetch
from services.poller.sites.indexes import children_of, named_no_more
from services.poller.sites.looking_again import WAITS, noted, says_the_same
from services.poller.sites.news import Comparison, News, pack_known, unpack_known
from services.poller.sites.politeness import Politeness
from services.poller.sites.prices import Prices
from services.poller.sites.robots_book import NotYet, RobotsBook
from services.poller.sites.rules import BAD, LATE, SiteRules
from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.discovery.busy import Busy
from shared.discovery.looking import source_of
from shared.discovery.robots import Robots
from shared.policy.polls import PollRecord
from shared.runtime.databases import databases_of
from shared.runtime.fetching import Fetcher, FetchFailed, Unreached
from shared.runtime.pings import Ping
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL
from shared.store.known_pages import known_pages
from shared.store.questions import SharedQuestions, take_turns
from shared.store.watched import (
    INDEX,
    ROBOTS,
    DueSource,
    NewSource,
    Pace,
    Reading,
    add_sources,
    call_forward,
    count_left_out,
    count_sources,
    drop_sources,
    note_poll_failed,
    note_quiet,
    note_reading,
    sitemaps_of,
    take_due_sources,
)
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

TURN_SECONDS: Final = 1.0
AT_ONCE: Final = 8
"""Sources that are read at a time, each of another host."""

HELD_TIMEOUTS: Final = 3.0
"""A source is held for so many times what a fetch may take."""

SHOWN_AS: Final = "sites"
"""The source of all their signals in metrics: there may be thousands."""

JUDGED_SECONDS: Final = 10.0
"""Of a processor, for asking robots.txt about a document's addresses; usual ones take hundredths.
Those that come later wait: threads that nobody ends are few, and all sources share them."""

_REASON: Final = 300


class Output(Protocol):
    """Where it goes; each returns when the broker has it all."""

    async def publish(self, source: str, pings: Sequence[Ping], shown_as: str) -> None:
        """Signals; metrics show them as one source."""

    async def publish_pages(self, pages: Sequence[PageIdentity]) -> None:
        """New pages."""


class SitePoller:
    """Reads sources for as long as it is let."""

    def __init__(self, settings: Settings, fetcher: Fetcher, output: Output) -> None:
        """Make it.

        Args:
            settings: of the process.
            fetcher: started before `run`.
            output: where what is found goes.
        """
        self._settings = settings
        self._longest = max(settings.poller_longest_seconds, settings.poller_shortest_seconds)
        self._fetcher = fetcher
        self._output = output
        self._shared = SharedQuestions(databases_of(settings), "poller")
        self._questions = self._shared.home
        self._prices = Prices(settings, self._shared)
        self._feeds = FeedProcess()
        self._politeness = Politeness(settings.poller_host_gap_seconds)
        self._robots = RobotsBook(
            fetcher,
            self._politeness,
            settings.poller_user_agent,
            settings.poller_longest_seconds,
        )
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._hosts: dict[str, str] = {}

    async def run(self) -> None:
        """Look again and again."""
        async with asyncio.TaskGroup() as group:
            await take_turns(
                lambda: self._turn(group), TURN_SECONDS, "watched sites wait for the database"
            )

    def stop(self) -> None:
        """Give up what is being read."""
        self._feeds.stop()
        self._shared.stop()

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        room = AT_ONCE - len(self._under_way)
        if room <= 0:
            return
        settings = self._settings
        held = HELD_TIMEOUTS * settings.poller_fetch_seconds
        due = await self._questions.ask(
            take_due_sources,
            WALL.now(),
            room,
            sorted({*self._politeness.busy(), *self._hosts.values()}),
            held,
            2.0 * max(held, longest_wait(self._longest)),
        )
        for source in due:
            if source.url not in self._under_way:
                self._hosts[source.url] = source.host
                self._under_way[source.url] = group.create_task(self._poll(source))
        for state, count in (await self._questions.ask(count_sources)).items():
            metrics.SOURCES.labels(state).set(count)

    async def _poll(self, due: DueSource) -> None:
        metrics.POLLS_BY_REASON.labels(_why(due)).inc()
        try:
            result = await self._read(due)
        except (FetchFailed, BadDocument) as failure:
            await self._failed(due, failure)
            result = "failed"
        except psycopg.Error as error:
            # That of the pages, maybe, while the home answers: it is no reason to ask the site for
            # the same again and again.
            await self._failed(due, error)
            result = "failed"
        except Exception as error:
            # Of one source: the others are not to suffer for it.
            log.exception("a source cannot be read", source=due.source)
            await self._failed(due, error)
            result = "failed"
        finally:
            del self._under_way[due.url], self._hosts[due.url]
        metrics.POLLS.labels(result).inc()

    async def _failed(self, due: DueSource, failure: Exception) -> None:
        asked = failure.seconds if isinstance(failure, Busy | NotYet) else None
        shortest, longest = self._settings.poller_shortest_seconds, self._longest
        wait = wait_after_failure(due.failures + 1, asked, shortest=shortest, longest=longest)
        if isinstance(failure, Busy | Unreached):
            # How long this source has failed is no reason to read the others of its host later.
            pause = pause_of_host(asked, shortest=shortest, longest=longest)
            self._politeness.pause(due.host, pause)
        reason = "".join(c for c in (str(failure) or repr(failure))[:_REASON] if c.isprintable())
        log.info("a source fails", source=due.source, reason=reason, again_in_seconds=round(wait))
        try:
            await self._questions.ask(note_poll_failed, due.url, reason, WALL.now() + wait)
        except psycopg.Error as error:
            log.warning("that a source fails is not stored", error=str(error).strip())

    async def _read(self, due: DueSource) -> str:
        """Poll a source; `changed` or `unchanged`."""
        own = await self._robots.rules_of(due.url, anew=due.kind == ROBOTS)
        now = WALL.now()
        if due.kind == ROBOTS:
            await self._questions.ask(add_sources, due.site, _of_robots(own, due))
            longest = self._settings.poller_longest_seconds
            await self._questions.ask(note_quiet, due.url, now, Pace(longest, False, *PollRecord()))
            return "unchanged"
        if not own.allows(due.url):
            raise FetchFailed("robots.txt does not let it be read")
        known = unpack_known(due.seen, is_first=not due.digest)
        max_age = self._settings.signal_max_age_days * SECONDS_PER_DAY
        comparison = Comparison(known, now, max_age)
        async with self._politeness.turn(due.host, own.crawl_delay):
            got = await fetch(self._fetcher, self._feeds, due, comparison.give, now)
        if isinstance(got, Same):
            pace = await self._pace(due, due.kind, now, None, [], found=False)
            await self._questions.ask(note_quiet, due.url, now, pace, *got)
            return "unchanged"
        reading, pace = await self._take(due, got, comparison, now)
        await self._questions.ask(note_reading, due.url, reading, pace)
        return "changed"

    async def _take(
        self,
        due: DueSource,
        got: Got,
        comparison: Comparison,
        now: float,
    ) -> tuple[Reading, Pace]:
        """Publish what a document says; what to remember of it."""
        new: list[PageIdentity] = []
        said: list[tuple[PageIdentity, News]] = []
        pings: list[Ping] = []
        exact: list[float] = []
        left_out: Counter[str] = Counter()
        if got.summary.kind == INDEX:
            found = await self._take_index(due, got.url, comparison) > 0
        else:
            if got.summary.kind == "feed":
                comparison.undated_are_of_now()
            if says_the_same(due.digest, got.digest):
                comparison.new_say_nothing()
            rules = SiteRules(due.hosts, due.include, due.exclude)
            origins = await asyncio.to_thread(rules.origins_of, comparison.news)
            robots = await self._robots.rules_at(origins)
            pages, said, left_out = await asyncio.to_thread(_sorted_out, comparison, rules, robots)
            if bad := left_out[BAD] + got.summary.bad_entries:
                metrics.BAD_ENTRIES.inc(bad)
                log.info("entries of a source are no URLs", source=due.source, entries=bad)
            if late := left_out[LATE]:
                log.warning("a robots.txt takes too long to ask", source=due.source, entries=late)
            new = await self._not_known(pages)
            pings = [Ping(page.url, page.host, news.observed_at) for page, news in said]
            exact = [
                now - news.observed_at
                for _, news in said
                if news.is_exact and news.observed_at is not None
            ]
            await self._output.publish_pages(new)
            await self._output.publish(due.source, pings, SHOWN_AS)
            found = bool(new or pings)
        shown = list({page.url: page for page, _ in said}.values())
        hint = got.summary.hint_seconds
        pace = await self._pace(due, got.summary.kind, now, hint, shown, found=found)
        reading = Reading(
            got.summary.kind,
            got.etag,
            got.last_modified,
            noted(got.digest, left_out.keys() & WAITS, now, self._robots.fresh_seconds),
            pack_known(comparison.remembered),
            now,
            len(comparison.dates),
            len(new),
            len(pings),
            len(exact),
            sum(exact),
        )
        return reading, pace

    async def _take_index(self, due: DueSource, base: str, comparison: Comparison) -> int:
        """Add the sitemaps of an index, let go of those that it names no more, and call those
        forward whose date has moved on; how many are new."""
        if due.found_by == INDEX:
            raise BadDocument("an index within an index is not read")
        children = await asyncio.to_thread(children_of, due, base, comparison)
        watched = await self._questions.ask(sitemaps_of, due.site, due.source, due.url)
        gone = named_no_more(watched, children.values(), comparison)
        try:
            await self._questions.ask(drop_sources, due.site, gone)
        except psycopg.errors.InsufficientPrivilege as error:
            log.warning("sitemaps stay that no index names: freshet migrate", error=str(error))
        added = await self._questions.ask(add_sources, due.site, list(children.values()))
        if left_out := await self._questions.ask(count_left_out, list(children.values())):
            log.warning("a site has more files than are read", site=due.site, left_out=left_out)
        moved = {news.url for news in comparison.news if not news.is_new} & children.keys()
        await self._questions.ask(call_forward, due.site, [children[url].url for url in moved])
        return added

    async def _not_known(self, pages: Sequence[PageIdentity]) -> list[PageIdentity]:
        """Those that Freshet does not have; one that an operator removed stays so."""
        known: set[int] = set()
        for questions, part in self._shared.by_host(pages, attrgetter("host")):
            known |= await questions.ask(known_pages, part)
        return [page for page in pages if page.page_id not in known]

    async def _pace(
        self,
        due: DueSource,
        kind: str,
        now: float,
        hint: float | None,
        shown: Sequence[PageIdentity],
        *,
        found: bool,
    ) -> Pace:
        """How soon a source is read again that has said something of these pages now."""
        shortest, longest = self._settings.poller_shortest_seconds, self._longest
        record = PollRecord(due.worth, due.worth_signals, due.worth_days)
        price = 0.0
        if kind != INDEX and due.digest:
            slot = await self._prices.of_slot()
            worth = await self._prices.worth_of(shown, slot) if slot > 0.0 else None
            if worth is not None:
                days = max(now - due.polled_at, 0.0) / SECONDS_PER_DAY
                record = record.after(days, len(shown), worth)
                price = slot * self._settings.poller_poll_crawls
        seconds = interval_by_value(record, price, shortest=shortest, longest=longest)
        if seconds is not None:
            return Pace(seconds, True, *record)
        before = due.interval_seconds
        seconds = next_interval(before, hint, found=found, shortest=shortest, longest=longest)
        return Pace(seconds, False, *record)


def _why(due: DueSource) -> str:
    """What made a source due."""
    if due.failures:
        return "retry"
    if not due.digest and due.kind != ROBOTS:
        return "first"
    return "value" if due.by_value else "rhythm"


def _sorted_out(
    comparison: Comparison, rules: SiteRules, robots: Mapping[str, Robots]
) -> tuple[list[PageIdentity], list[tuple[PageIdentity, News]], Counter[str]]:
    """Addresses that were not there before, what is said of pages, and how many are left out, by
    why: those that robots.txt keeps out, or was not asked about, are to be looked at anew."""
    left_out: Counter[str] = Counter()
    pages: dict[str, PageIdentity] = {}
    said: list[tuple[PageIdentity, News]] = []
    until = time.thread_time() + JUDGED_SECONDS
    for news in comparison.news:
        page = rules.page_of(news, robots) if time.thread_time() < until else LATE
        if isinstance(page, str):
            left_out[page] += 1
            if page in WAITS:
                comparison.forget(news.url)
            continue
        if news.is_new:
            pages[page.url] = page
        if news.signals:
            said.append((page, news))
    return list(pages.values()), said, left_out


def _of_robots(robots: Robots, due: DueSource) -> list[NewSource]:
    found = []
    for url in robots.sitemaps:
        try:
            place = identify(urljoin(due.url, url))
        except (BadUrl, ValueError):
            continue
        found.append(NewSource(place.url, place.host, source_of(place.url), "", ROBOTS))
    return found
