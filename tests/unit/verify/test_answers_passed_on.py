"""In a growth, an answer of a page whose shard was not split yet may stand on its later partition
first, be passed on, and come back: the checks take it to be known there once it came back."""

from dataclasses import replace

import pytest
from made_ledgers import answered, asked, ledger

from services.verify.checks import requests
from shared.contracts.layout import Layout


def crawled_twice(result, copies):
    """A run that asks for a page at 10 and 40 s; answers: pairs of partition and time."""
    first, second = asked(10.0, partition=0), asked(40.0, reason="new", partition=3)
    answer = answered(first, 10.1, result)
    outcomes = [replace(answer, partition=there, written_at=at) for there, at in copies]
    return ledger(layout=Layout.of(3), requests=[first, second], outcomes=outcomes)


def offences(run):
    return requests.forgotten_crawls(run, 60.0).count + requests.asked_while_away(run, []).count


@pytest.mark.parametrize("result", ["changed", "disallowed"])
@pytest.mark.parametrize(
    ("copies", "found"),
    [
        ([(3, 10.1)], 1),
        ([(3, 10.1), (0, 11.0)], 0),
        ([(3, 10.1), (0, 11.0), (3, 50.0)], 0),
        ([(3, 10.1), (0, 11.0), (3, 39.9)], 0),
        ([(3, 10.1), (0, 11.0), (3, 12.0)], 1),
        ([(3, 10.1), (0, 11.0), (3, 36.0)], 1),
        ([(3, 10.1), (0, 11.0), (3, 12.0), (3, 39.9)], 1),
        ([(3, 12.0), (0, 45.0)], 1),
        ([(0, 11.0)], 0),
    ],
    ids=str,
)
def test_an_answer_is_known_where_it_stands_last(result, copies, found):
    assert offences(crawled_twice(result, copies)) == found
