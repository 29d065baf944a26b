"""What the records of a host's pages say in common, compiled: credit of signals, and surprise."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats, Integers, sane_interval

Row = NDArray[Any]

SIGNALS_OF_A_PAGE = 5.0
"""As so many signals of a source those of one page count, however many they are: a home page that
is signalled all the time does not speak for the others. Alone it says too little for its source to
be believed (`bursts.trusts_bursts`)."""


@compiled
def page_totals(intervals: Row, changed: Row, records: int) -> tuple[float, float]:
    """(records that found a change, days that all of them cover) of a page."""
    found, days = 0.0, 0.0
    for record in range(records):
        days += sane_interval(intervals[record])
        found += changed[record] > 0
    return found, days


@compiled
def surprise_rings(
    pages: Integers,
    host_index: Row,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    host_shape: Row,
    surplus: Floats,
    variance: Floats,
    room: Floats,
) -> None:
    """Add to `surplus`, `variance` and `room` (hosts, K) how changes surprise where signals came.

    Each record with a signal of source k is foretold from the page's other records and its host,
    signals ignored: with rates Gamma(A, A/m) over the host's pages and z changes in the T days of
    the others, it finds a change with P = 1 − (b/(b + t))^a, a = A + z, b = A/m + T.

    What those records found, their own signals have announced in part, so P has some of the merit
    that is to be judged: it lacks it only as far as the page had time without a signal of k. With
    the part c of that time the precision of signals is about Σ w(z − P) / Σ w c(1 − P), with a
    standard error of √Σ w²P(1 − P) above the line. Pages that always had signals say nothing of
    them. The weight w is one for each page, shared by its records with a signal, so that few pages
    that are flooded do not speak for the others.
    """
    depth, sources = intervals.shape[1], signals.shape[2]
    host_found, host_days = np.zeros(host_shape.size), np.zeros(host_shape.size)
    records, free = np.zeros(sources), np.zeros(sources)
    for page in pages:
        host, last = host_index[page], min(count[page], depth)
        found, days = page_totals(intervals[page], changed[page], last)
        host_found[host] += found
        host_days[host] += days
    for page in pages:
        host, last = host_index[page], min(count[page], depth)
        shape = host_shape[host]
        # Half a change more, so that a host without one foretells some.
        mean_days = host_days[host] / (host_found[host] + 0.5)
        found, days = page_totals(intervals[page], changed[page], last)
        _count_signalled(intervals[page], signals[page], last, records, free)
        for record in range(last):
            own, is_change = sane_interval(intervals[page, record]), changed[page, record] > 0
            others = shape * mean_days + max(days - own, 0.0)
            quiet = math.exp((shape + found - is_change) * math.log1p(-own / (others + own)))
            chance = max(1.0 - quiet, 1e-9)
            for source in range(sources):
                if signals[page, record, source] > 0:
                    weight = 1.0 / records[source]
                    surplus[host, source] += weight * (is_change - chance)
                    variance[host, source] += weight * weight * chance * quiet
                    room[host, source] += weight * quiet * free[source] / days


@compiled
def _count_signalled(
    intervals: Row, signals: Row, last: int, records: Floats, free: Floats
) -> None:
    """Set, by source, the records of a page with a signal, and the days of those without."""
    records[:], free[:] = 0.0, 0.0
    for record in range(last):
        days = sane_interval(intervals[record])
        for source in range(records.size):
            if signals[record, source] > 0:
                records[source] += 1
            else:
                free[source] += days


@compiled
def _add_weighed(true: Floats, heard: Floats, credited: Row, signalled: Row) -> None:
    """Add a page's signals by source, and how many of them were true, to those of its host."""
    for source in range(heard.size):
        weight = min(1.0, SIGNALS_OF_A_PAGE / heard[source]) if heard[source] > 0.0 else 0.0
        credited[source] += weight * true[source]
        signalled[source] += weight * heard[source]


@compiled
def credit_rings(
    pages: Integers,
    host_index: Row,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    host_rate: Row,
    factor: Row,
    unsignalled_change_rate: Row,
    heard_rate: Row,
    signal_evidence: Row,
    credited: Floats,
    signalled: Floats,
    seen_rate: Floats,
    seen_pages: Floats,
) -> None:
    """Add what each page's records say to its host's sums.

    A signal of source k in a changed record is credited with p_k/(1 − e^{−s}), at most 1: the
    probability that it was true, given the change (`credited`, (hosts, K), of `signalled`). All
    those of one page and source count as `SIGNALS_OF_A_PAGE` at most.

    Of the time T that the records cover, T/(B + T) pages' worth is seen beside the prior
    (`seen_pages`), and x/(1 − e^{−s})/(B + T) per changed record of it is the rate seen then, with
    `heard_rate` (`light_modes`) for α̂. Of a page with a `factor` f (`page_factors`) B is its host's
    over f, and so is the rate seen.
    """
    sources = signals.shape[2]
    true, heard = np.empty(sources), np.empty(sources)
    for index in range(pages.size):
        page = pages[index]
        host = host_index[page]
        found, covered = 0.0, 0.0
        true[:], heard[:] = 0.0, 0.0
        for record in range(min(count[page], intervals.shape[1])):
            days = sane_interval(intervals[page, record])
            own = heard_rate[page] * days
            covered += days
            told = 0.0
            for source in range(sources):
                told += signal_evidence[page, source] * signals[page, record, source]
            exponent = unsignalled_change_rate[page] * days + told
            for source in range(sources):
                number = signals[page, record, source]
                if number == 0:
                    continue
                heard[source] += number
                if changed[page, record]:
                    precision = -math.expm1(-signal_evidence[page, source])
                    truth = precision / -math.expm1(-exponent)
                    true[source] += number * min(truth, 1.0)
            if changed[page, record]:
                found += own / -math.expm1(-(own + told))
        _add_weighed(true, heard, credited[host], signalled[host])
        rate = host_rate[host] / factor[page]
        seen_rate[host] += found / ((rate + covered) * factor[page])
        seen_pages[host] += covered / (rate + covered)
