"""What is asked of the database about hosts, and what is remembered."""

from types import SimpleNamespace

import numpy as np

from shared.contracts.identity import host_id_of, identify, shard_of
from shared.contracts.layout import Layout
from shared.store import known_pages as looking_up
from shared.store.host_pages import HostPages, PagesByHost, count_pages_by_host, hosts_there
from shared.store.layout import read_layout
from shared.store.what_is_known import ABSENT_SECONDS, COUNTED_SECONDS, WhatIsKnown


class Questions:
    """Answers as a database would whose hosts have so many pages, all in one shard."""

    def __init__(self, pages):
        self.pages = pages
        self.layout = Layout.of(1)
        self.hosts = set(pages)
        self.asked = []

    async def ask(self, question, *arguments):
        if question is read_layout:
            return self.layout
        self.asked.append(question)
        if question is hosts_there:
            return set(arguments[0]) & self.hosts
        assert question is count_pages_by_host
        rows = sorted((host_id_of(host), *counts) for host, counts in self.pages.items())
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        return PagesByHost(*(np.array(column, np.int64) for column in columns))


async def test_pages_are_counted_once_an_hour_and_what_was_let_in_since_is_added():
    questions = Questions({"a.example": (5, 4), "b.example": (2, 0)})
    known = WhatIsKnown(questions)
    wanted = ["a.example", "b.example"]
    assert await known.hosts(wanted, 0.0) == {
        "a.example": HostPages(5, True),
        "b.example": HostPages(2, False),
    }
    known.add({"a.example": 3})
    assert (await known.hosts(wanted, 1.0))["a.example"] == HostPages(8, True)
    assert questions.asked == [count_pages_by_host]
    questions.pages["a.example"] = (9, 8)
    assert (await known.hosts(wanted, COUNTED_SECONDS))["a.example"] == HostPages(9, True)


async def test_a_host_that_came_after_the_counting_is_known_within_a_minute():
    questions = Questions({"a.example": (1, 1)})
    known = WhatIsKnown(questions)
    assert (await known.hosts(["new.example"], 0.0))["new.example"] == HostPages(0, False)
    questions.hosts.add("new.example")
    asked = len(questions.asked)
    assert (await known.hosts(["new.example"], 1.0))["new.example"] == HostPages(0, False)
    assert len(questions.asked) == asked
    later = await known.hosts(["new.example"], ABSENT_SECONDS)
    assert later["new.example"] == HostPages(0, True)
    known.add({"new.example": 2})
    assert (await known.hosts(["new.example"], 99.0))["new.example"] == HostPages(2, True)


async def test_a_shard_without_pages_has_no_hosts():
    known = WhatIsKnown(Questions({}))
    assert await known.hosts(["a.example"], 0.0) == {"a.example": HostPages(0, False)}


def test_a_page_whose_shard_is_split_meanwhile_is_found_where_it_is_then(monkeypatch):
    page = next(
        page
        for page in (identify(f"https://host-{n}.example/") for n in range(99))
        if shard_of(page.host, 2) == 1
    )
    before, after = Layout(2, 1, frozenset()), Layout(2, 1, frozenset({0}))
    layouts = [before, after, after]
    asked = []

    def execute(query, values):
        # Once the layout was read, the split was committed: the page has left its first shard.
        asked.append(values[0])
        return [(page.page_id,)] if values[0] == 1 else []

    monkeypatch.setattr(looking_up, "read_layout", lambda connection: layouts.pop(0))
    found = looking_up.known_pages(SimpleNamespace(execute=execute), [page])
    assert (found, asked) == ({page.page_id}, [0, 1])
