"""What is asked of the database about hosts, and what is remembered."""

from types import SimpleNamespace

import numpy as np

from shared.contracts.identity import host_id_of, identify, shard_of
from shared.contracts.layout import Layout
from shared.store import known_pages as looking_up
from shared.store.host_pages import PagesByHost, count_pages_by_host, hosts_there
from shared.store.layout import read_layout
from shared.store.let_in import forget_let_in, let_in
from shared.store.what_is_known import ABSENT_SECONDS, COUNTED_SECONDS, WhatIsKnown


class Questions:
    """Answers as a database would whose hosts have so many pages, all in one shard."""

    def __init__(self, pages):
        self.pages = pages
        self.layout = Layout.of(1)
        self.hosts = set(pages)
        self.asked = []

    def by_host(self, some, _host_of):
        return [(self, list(some))]

    def of_shard(self, _shard):
        return self

    async def ask(self, question, *arguments):
        if question is read_layout:
            return self.layout
        self.asked.append(question)
        if question is hosts_there:
            return set(arguments[0]) & self.hosts
        if question is let_in:
            return dict(zip(("before", "most"), arguments[1:], strict=True))
        if question is forget_let_in:
            return 0
        assert question is count_pages_by_host
        rows = sorted((host_id_of(host), *counts) for host, counts in self.pages.items())
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        modulus = self.at_counting.modulus_of(0)
        return PagesByHost(modulus, *(np.array(column, np.int64) for column in columns))

    @property
    def at_counting(self):
        """The layout when pages are counted."""
        return self.layout


async def test_pages_are_counted_once_an_hour():
    questions = Questions({"a.example": (4, 5), "b.example": (0, 2)})
    known = WhatIsKnown(questions)
    wanted = ["a.example", "b.example"]
    pages = [identify(f"https://{host}/new") for host in wanted]
    assert await known.hosts(wanted, 0.0) == {"a.example"}
    assert await known.let_in(pages, 9, 1.0) == {
        "before": {"a.example": 5, "b.example": 2},
        "most": 9,
    }
    assert questions.asked == [forget_let_in, count_pages_by_host, let_in]
    questions.pages["a.example"] = (8, 9)
    assert (await known.let_in(pages, 9, COUNTED_SECONDS))["before"]["a.example"] == 9


async def test_a_shard_that_is_split_is_counted_again_however_lately_it_was():
    class Splitting(Questions):
        """The first counting sees a layout that the one who asked for it does not know yet."""

        async def ask(self, question, *arguments):
            if question is count_pages_by_host and len(self.asked) == 3:
                self.layout = Layout(2, 1, frozenset({0}))
            return await super().ask(question, *arguments)

    host = next(f"h{n}.example" for n in range(99) if shard_of(f"h{n}.example", 2) == 0)
    questions = Splitting({host: (1, 1)})
    known = WhatIsKnown(questions)
    assert await known.hosts([host], 0.0) == {host}
    assert questions.asked.count(count_pages_by_host) == 1
    assert await known.hosts([host], COUNTED_SECONDS) == {host}
    assert questions.asked.count(count_pages_by_host) == 2
    # It goes by the layout that there is in the end.
    questions.layout = Layout(4, 2, frozenset({0, 1}))
    other = next(f"h{n}.example" for n in range(99) if shard_of(f"h{n}.example", 4) == 0)
    await known.hosts([other], COUNTED_SECONDS + 1)
    assert questions.asked.count(count_pages_by_host) == 3


async def test_a_host_that_came_after_the_counting_is_known_within_a_minute():
    questions = Questions({"a.example": (1, 1)})
    known = WhatIsKnown(questions)
    assert await known.hosts(["new.example"], 0.0) == set()
    questions.hosts.add("new.example")
    asked = len(questions.asked)
    assert await known.hosts(["new.example"], 1.0) == set()
    assert len(questions.asked) == asked
    assert await known.hosts(["new.example"], ABSENT_SECONDS) == {"new.example"}
    page = identify("https://new.example/")
    assert await known.let_in([page], 9, ABSENT_SECONDS) == {
        "before": {"new.example": 0},
        "most": 9,
    }


async def test_a_shard_without_pages_has_no_hosts():
    known = WhatIsKnown(Questions({}))
    assert await known.hosts(["a.example"], 0.0) == set()


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
