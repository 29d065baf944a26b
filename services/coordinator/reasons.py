"""Why a decision was made, in words for people. Pure."""

from collections.abc import Iterable, Mapping

from shared.pacing.budget import Stretch
from shared.pacing.groups import Groups, Limits

_LISTED = 8
"""Shards are named one by one up to so many."""


def taken_over(epoch: int, shards: int) -> str:
    """A coordinator begins to lead, where another has led."""
    return f"another coordinator leads now, in epoch {epoch}; {shards} shards report"


def started(shards: int) -> str:
    """There were no multipliers before."""
    return f"the first decision; {shards} shards report"


def bandwidth(before: float, stretch: Stretch, *, by_schedule: bool) -> str:
    """The budget is another."""
    who = "the schedule changes" if by_schedule else "an operator changed"
    text = f"{who} the bandwidth from {before:.6g} to {stretch.final:.6g} crawls/s"
    if stretch.ramp_seconds > 0:
        text += f" within {stretch.ramp_seconds:.6g} s"
    return text


def silent(shards: Iterable[int], seconds: float, shares: Mapping[int, float]) -> str:
    """Shards have stopped to report."""
    gone = sorted(shards)
    share = sum(shares.get(shard, 0.0) for shard in gone)
    return (
        f"{_named(gone)} did not report for {seconds:.3g} s: {share:.1%} of the bandwidth goes to "
        "the others"
    )


def came(shards: Iterable[int], shares: Mapping[int, float]) -> str:
    """Shards report for the first time, or again."""
    new = sorted(shards)
    share = sum(shares.get(shard, 0.0) for shard in new)
    return f"{_named(new)} reports now: {share:.1%} of the bandwidth goes there"


def short(usable: Mapping[int, float]) -> str:
    """Shards leave slots empty."""
    rates = ", ".join(f"{rate:.6g} crawls/s" for _, rate in sorted(usable.items())[:_LISTED])
    return (
        f"{_named(sorted(usable))} leaves slots empty (host limits, a slow process, or too few "
        f"pages) and can use {rates}: the rest goes to the others"
    )


def demand(before: float, now: float, moved: float, ramp: Stretch) -> str:
    """Curves have changed: other parameters, pages, host limits, or other pages that are ripe."""
    parts = []
    if before != now:
        parts.append(f"λ₀ from {before:.4g} to {now:.4g}")
    if moved > 0:
        parts.append(f"{moved:.1%} of the bandwidth to other shards")
    what = " and ".join(parts) or "nothing"
    why = "the bandwidth is in a ramp" if ramp.ramp_seconds > 0 else "the shards' demand changed"
    return f"{why}: {what}"


def groups(before: Groups, now: Groups) -> str:
    """Limits of groups of hosts are others, or are shared in another way."""
    had = {shares.group: shares for shares in before}
    have = {shares.group: shares for shares in now}
    parts = [f"{name} has no limit any more" for name in sorted(had.keys() - have.keys())]
    for name, shares in have.items():
        last, rate = had.get(name), f"{shares.crawls_per_second:.6g} crawls/s"
        if last is None or last.crawls_per_second != shares.crawls_per_second:
            parts.append(f"the hosts of {name} take at most {rate} together")
        elif last != shares:
            parts.append(f"the limit of {name}, {rate}, is shared by {len(shares.allotments)}")
    more = f", and {len(parts) - _LISTED} more" if len(parts) > _LISTED else ""
    return ", ".join(parts[:_LISTED]) + more


def default(before: Limits, now: Limits) -> str:
    """The limit of all other groups is another, or is shared in another way."""
    had, have = before.default, now.default
    if have == had:
        return ""
    if have is None:
        return "other groups have no limit any more"
    if had is None or had.crawls_per_second != have.crawls_per_second:
        return f"the hosts of any other group take at most {have.crawls_per_second:.6g} crawls/s"
    divided = sum(1 for of in have.divided if of.shards)
    return f"the limit of other groups is divided by pages for {divided}"


def _named(shards: list[int]) -> str:
    if len(shards) == 1:
        return f"shard {shards[0]}"
    listed = ", ".join(str(shard) for shard in shards[:_LISTED])
    return f"each of {len(shards)} shards ({listed}{', …' if len(shards) > _LISTED else ''})"
