"""Whether maximum ages can be kept at a bandwidth, and at which they could."""

import math
from collections.abc import Mapping
from typing import Any, Final

from scipy.optimize import brentq

from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY

MOST_SHOWN: Final = 8
"""Maximum ages that are named, those that ask for most."""


def bounds_of(pages: Mapping[float, int], default_days: float | None) -> dict[float, int]:
    """Maximum age in days → pages that have it, or none of their own and this default."""
    bounds = {days: count for days, count in pages.items() if math.isfinite(days)}
    unbounded = sum(pages.values()) - sum(bounds.values())
    if default_days is not None and unbounded:
        bounds[default_days] = bounds.get(default_days, 0) + unbounded
    return bounds


def judged_by(
    settings: Settings, pages: Mapping[float, int], bandwidth: float | None
) -> dict[str, Any]:
    """`judged`, with what settings say.

    Args:
        settings: of the deployment.
        pages: maximum age in days → pages that have it; infinite: none of their own.
        bandwidth: as there.
    """
    return judged(
        bounds_of(pages, settings.default_max_age_days),
        bandwidth,
        settings.least_interval_seconds,
        settings.reason_shares.get("value", 0.0),
        sum(terms.share for terms in settings.classes.values()),
    )


def judged(
    pages: Mapping[float, int],
    bandwidth: float | None,
    least_interval: float,
    by_value: float = 0.0,
    by_class: float = 0.0,
) -> dict[str, Any]:
    """What the maximum ages of pages ask for.

    Of pages beyond their maximum age the latest goes first. So where the bandwidth does not suffice
    for all, all become late alike: by L, for which Σ 1/(A + L) over the pages is the bandwidth.

    Args:
        pages: maximum age in days → how many pages have it.
        bandwidth: crawls per second; None: not known.
        least_interval: seconds from a page's last crawl to the next at least.
        by_value: part of everybody's slots that is kept for crawls by value, whatever is late.
        by_class: part of the slots that is kept for classes, whose pages need not be the late ones.

    Returns:
        `pages`, `crawls_per_second` that keep them (at least: new pages and urgent ones go first,
        and hosts have limits); `can_be_kept` at the bandwidth (None: not known), and else
        `late_days`, L (None: without bound); `kept_by_value` and `kept_by_class`: the parts of the
        slots without which they cannot be, as crawls by value and classes are given these, of late
        pages or of others; `too_short`: pages whose maximum age is less than the
        least interval; `ages`: by maximum age, those that ask for most first, `max_age_days`,
        `pages` and `crawls_per_second`.
    """
    seconds = {days: max(days * SECONDS_PER_DAY, least_interval) for days in pages}
    asked = {days: pages[days] / seconds[days] for days in pages}
    needed = sum(asked.values())

    late = None
    if bandwidth is not None and 0.0 < bandwidth < needed:
        late = _late(seconds, pages, bandwidth)
    kept_by_value = (1.0 - by_class) * by_value
    if bandwidth is None or bandwidth * (1.0 - by_class - kept_by_value) >= needed:
        kept_by_value = by_class = 0.0
    return {
        "pages": sum(pages.values()),
        "crawls_per_second": needed,
        "can_be_kept": None if bandwidth is None else needed <= bandwidth,
        "kept_by_value": kept_by_value,
        "kept_by_class": by_class,
        "late_days": None if late is None else late / SECONDS_PER_DAY,
        "too_short": sum(n for days, n in pages.items() if days * SECONDS_PER_DAY < least_interval),
        "ages": [
            {"max_age_days": days, "pages": pages[days], "crawls_per_second": rate}
            for days, rate in sorted(asked.items(), key=lambda item: -item[1])
        ],
    }


def _late(seconds: Mapping[float, float], pages: Mapping[float, int], bandwidth: float) -> float:
    """L in seconds."""

    def beyond(late: float) -> float:
        return sum(pages[days] / (seconds[days] + late) for days in pages) - bandwidth

    return float(brentq(beyond, 0.0, sum(pages.values()) / bandwidth))


def max_age_lines(found: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    if not found["pages"]:
        return []
    said = f"max ages   {found['pages']:,} pages ask for {found['crawls_per_second']:.6g} crawls/s"
    if found["can_be_kept"] is None:
        shown = [said]
    elif found["can_be_kept"]:
        kept = {
            "for classes": found["kept_by_class"],
            "for crawls by value": found["kept_by_value"],
        }
        whose = " and ".join(name for name, part in kept.items() if part)
        part = f"{sum(kept.values()):.3g} of the slots, which are kept {whose}"
        shown = [f"{said}: they can be kept"]
        shown[0] += f" if enough of {part}, come to such pages" if whose else ""
    else:
        late = found["late_days"]
        become = "" if late is None else f", pages become {late:.3g} days late"
        shown = [f"{said} at least: at this bandwidth they cannot be kept{become}"]
        shown += [
            f"           {one['max_age_days']:.6g} days: {one['pages']:,} pages, "
            f"{one['crawls_per_second']:.6g} crawls/s"
            for one in found["ages"][:MOST_SHOWN]
        ]
    if found["too_short"]:
        shown.append(
            f"           {found['too_short']:,} pages have one below "
            "FRESHET_LEAST_INTERVAL_SECONDS: it is never kept"
        )
    return shown
