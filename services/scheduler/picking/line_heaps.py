"""Heaps of hosts that wait in line: the one that may have the most urgent page is on top.

A pairing heap (Fredman, Sedgewick, Sleator and Tarjan 1986) for each line, whose links are in the
rows of the hosts: a host is in one line at most, and may leave it from anywhere. To enter costs
O(1), to leave O(log n) on average over many.
"""

from typing import Final

from services.scheduler.state.rows import NO_HOST, Rows
from shared.policy.compiled import compiled

IN_LINE: Final = 2
"""`is_parked` of a host that waits in a line, and not for a time."""


@compiled
def _merge(hosts: Rows, one: int, other: int) -> int:
    """Make one heap of two; its top."""
    if hosts[other].bound > hosts[one].bound:
        one, other = other, one
    below = hosts[one].line_below
    hosts[other].line_before = one
    hosts[other].line_next = below
    if below != NO_HOST:
        hosts[below].line_before = other
    hosts[one].line_below = other
    return one


@compiled
def _merge_all(hosts: Rows, first: int) -> int:
    """Make one heap of the heaps in a chain: in pairs, and these from the last one on; its top."""
    pairs = NO_HOST
    while first != NO_HOST:
        one, following = first, NO_HOST
        other = hosts[one].line_next
        if other != NO_HOST:
            following = hosts[other].line_next
            one = _merge(hosts, one, other)
        hosts[one].line_next = pairs
        pairs = one
        first = following
    top = NO_HOST
    while pairs != NO_HOST:
        following = hosts[pairs].line_next
        top = pairs if top == NO_HOST else _merge(hosts, top, pairs)
        pairs = following
    return top


@compiled
def _let_lead(hosts: Rows, lines: Rows, number: int, top: int) -> None:
    """Make a host the top of a line; `NO_HOST`: the line is empty."""
    lines[number].first = top
    if top != NO_HOST:
        hosts[top].line_before = hosts[top].line_next = NO_HOST


@compiled
def enter(hosts: Rows, lines: Rows, number: int, line: int) -> None:
    """Put a host that is in no line into one, by its `bound`."""
    host = hosts[number]
    host.is_parked, host.in_line = IN_LINE, line
    host.line_below = host.line_before = host.line_next = NO_HOST
    top = lines[line].first
    _let_lead(hosts, lines, line, number if top == NO_HOST else _merge(hosts, top, number))


@compiled
def leave(hosts: Rows, lines: Rows, number: int) -> None:
    """Take a host out of the line that it is in; it is not parked then."""
    host = hosts[number]
    host.is_parked = 0
    below = _merge_all(hosts, host.line_below)
    top, before, following = lines[host.in_line].first, host.line_before, host.line_next
    if top == number:
        _let_lead(hosts, lines, host.in_line, below)
        return
    if hosts[before].line_below == number:
        hosts[before].line_below = following
    else:
        hosts[before].line_next = following
    if following != NO_HOST:
        hosts[following].line_before = before
    if below != NO_HOST:
        _let_lead(hosts, lines, host.in_line, _merge(hosts, top, below))


@compiled
def raise_bound(hosts: Rows, lines: Rows, number: int, bound: float) -> None:
    """A page of a host that is in line may be worth more than any was before."""
    if not bound > hosts[number].bound:
        return
    leave(hosts, lines, number)
    hosts[number].bound = bound
    enter(hosts, lines, number, hosts[number].in_line)
