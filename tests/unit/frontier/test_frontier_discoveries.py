"""Discovered URLs are answered, whatever is wrong."""

import asyncio

import psycopg
import pytest

from services.frontier.discoveries import _Gathering
from shared.discovery.admission import Judged, Link

LINKS = [Link(f"https://a.example/{n}", None, 0.0) for n in range(3)]


class Admission:
    def __init__(self, *faults):
        self.faults = list(faults)

    async def judge(self, links, now):
        if self.faults:
            raise self.faults.pop(0)
        return [Judged("known", None) for _ in links]


@pytest.mark.parametrize("fault", [psycopg.OperationalError("away"), RuntimeError("of ours")])
async def test_who_waits_hears_of_any_fault_and_the_next_are_judged(fault):
    gathering = _Gathering(Admission(fault))
    async with asyncio.timeout(30):
        found = await asyncio.gather(*map(gathering.judge, LINKS), return_exceptions=True)
        assert found == [fault] * 3
        assert (await gathering.judge(LINKS[0])).became == "known"
