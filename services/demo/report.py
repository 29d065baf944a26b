"""What a demonstration came to, as JSON and as a few lines for people."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from services.demo.survey import means
from services.demo.website import FLEET, POLLER, Visit
from shared.terminal.output import table

if TYPE_CHECKING:
    from services.demo.session import Demo

NEWS_SECONDS: Final = 3.0
"""What a host asks for has reached the whole system after so long."""

_PRIVATE: Final = "/private/"


def compose(demo: "Demo", visits: Sequence[Visit]) -> dict[str, Any]:
    """The report.

    Args:
        demo: that has ended.
        visits: that the sites got while it was measured.
    """
    tally, pinger, seconds = demo.tally, demo.pinger, demo.website.now()
    copies = demo.survey.copies()
    interval = interval_of(copies.pages, len(visits), seconds)
    kinds = sorted({look.kind for look in demo.survey.looks})
    agents = Counter(visit.agent for visit in visits)
    return {
        "seconds": seconds,
        "interrupted": demo.interrupted,
        "seed": demo.options.seed,
        "sites": len(demo.website.sites),
        "pages": copies.pages,
        "changes": sum(len(p.changes) for s in demo.website.sites for p in s.plan.pages.values()),
        "looks": len(demo.survey.looks),
        "freshness": _shown(demo, interval, lambda _: True),
        "freshness_of_the_second_half": _shown(demo, interval, lambda k: k.at > seconds / 2),
        "freshness_by_kind": {
            kind: _shown(demo, interval, lambda look, kind=kind: look.kind == kind)
            for kind in kinds
        },
        "copies_at_the_end": copies._asdict(),
        "budget_per_second": demo.options.crawls_per_second,
        "visits": {
            "by_crawlers": agents[FLEET],
            "by_poller": agents[POLLER],
            "by_others": len(visits) - agents[FLEET] - agents[POLLER],
            "private_by_crawlers": sum(
                v.path.startswith(_PRIVATE) for v in visits if v.agent == FLEET
            ),
            "turned_away": sum(visit.status == 429 for visit in visits),
            "while_to_be_left_alone": unwelcome(visits),
        },
        "requests": {
            "made": len(tally.requests),
            "answered": len(tally.requests) - tally.in_flight,
            "unanswered": tally.in_flight,
            "answered_twice": tally.answered_twice,
            "results": dict(tally.results),
        },
        "signals": dict(tally.signals),
        "pings": {"taken": pinger.taken, "refused": pinger.refused},
        "dead_letters": tally.dead_letters,
        "restarts": {
            child.name: child.restarts for child in demo.system.stack.supervisor.children()
        },
    }


def interval_of(pages: int, visits: int, seconds: float) -> float:
    """T of `chance`: seconds in which as many requests as the sites got would fetch every page.

    Args:
        pages: that can be had.
        visits: all requests: crawls, sitemaps, feeds, robots.txt, keys.
        seconds: in which they came.
    """
    return pages * seconds / max(visits, 1)


def unwelcome(visits: Sequence[Visit]) -> int:
    """Requests that came, of the same agent, later than `NEWS_SECONDS` after a site had asked it to
    be left alone, and before that time was over."""
    found = 0
    alone: dict[tuple[str, str], tuple[float, float]] = {}
    for visit in visits:
        who = (visit.site, visit.agent)
        asked_at, until = alone.get(who, (0.0, 0.0))
        found += asked_at + NEWS_SECONDS < visit.at < until
        if visit.retry_after and visit.at >= until:
            alone[who] = (visit.at, visit.at + visit.retry_after)
    return found


def summary(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    copies, requests, visits = report["copies_at_the_end"], report["requests"], report["visits"]
    rows = [
        {"of": "all pages", **_percent(report["freshness"])},
        {"of": "all pages, second half", **_percent(report["freshness_of_the_second_half"])},
        *(
            {"of": f"sites like {kind}", **_percent(found)}
            for kind, found in report["freshness_by_kind"].items()
        ),
    ]
    return [
        f"{report['pages']} pages of {report['sites']} sites changed {report['changes']} times in "
        f"{report['seconds']:.0f} s; {report['looks']} times a copy on disk was compared with its "
        "page:",
        *table(rows, empty=""),
        "in turn, at random, once: what the requests that the sites got would give with every page "
        "fetched in turn, at random, or once only (by the plan of changes)",
        f"visits: {visits['by_crawlers']} by crawlers, {visits['by_poller']} by the poller, "
        f"{visits['by_others']} by others; {visits['turned_away']} turned away (429), "
        f"{visits['while_to_be_left_alone']} more while the site was to be left alone; "
        f"{visits['private_by_crawlers']} that robots.txt forbids",
        f"requests: {requests['made']}, {requests['unanswered']} not answered, "
        f"{requests['answered_twice']} answered twice",
        "signals: "
        + (", ".join(f"{n} {c}" for n, c in sorted(report["signals"].items())) or "-")
        + f"; {report['pings']['taken']} pings were taken; {report['dead_letters']} dead letters",
        f"copies at the end: {copies['current']} of {copies['pages']} as the site has them, "
        f"{copies['missing']} missing, {copies['unknown']} that no site ever served",
    ]


def _shown(demo: "Demo", interval: float, wanted: Any) -> dict[str, float] | None:
    found = means(demo.survey.looks, interval, wanted)
    return None if found is None else found._asdict()


def _percent(found: dict[str, float] | None) -> dict[str, str]:
    names = {"fresh": "fresh", "in_turn": "in turn", "at_random": "at random", "once": "once"}
    if found is None:
        return dict.fromkeys(names.values(), "-")
    return {shown: f"{found[name]:.1%}" for name, shown in names.items()}
