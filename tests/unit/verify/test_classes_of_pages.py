"""That pages are of the classes which updates say: what is sent, and what is found to be wrong."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from made_ledgers import URL, ledger, stored

from services.verify.checks import pages
from services.verify.plan import CLASSES
from services.verify.traffic import Expected, Traffic


@pytest.mark.parametrize(
    ("said", "has", "offenders"),
    [("news", "news", 0), ("news", "old", 1), ("news", "", 1), ("", "news", 1), ("", "", 0)],
)
def test_a_page_of_another_class_than_was_said_is_found(said, has, offenders):
    expected = Expected(classes={URL: said})
    assert pages.as_updated(ledger(pages=[stored(page_class=has)]), expected).count == offenders
    assert pages.without(expected, {URL}).classes == {}


class Told:
    """Takes what is published."""

    def __init__(self):
        self.updates = []

    def queue(self, _topic, _host, message):
        self.updates.append(message)


@dataclass
class Pages:
    urls: list[str]
    hosts: list[str]

    def __len__(self):
        return len(self.urls)


def told_with(classes):
    pages_of = Pages([f"https://h{n}.example/" for n in range(4)], ["h0.example"])
    sender = Told()
    traffic = Traffic(SimpleNamespace(pages=pages_of), sender, 7, classes)
    for _ in range(200):
        traffic._update_a_page()
    return traffic.expected, sender.updates


def test_each_update_says_all_of_its_page_so_that_the_last_one_alone_counts():
    expected, updates = told_with(tuple(CLASSES))
    last = {update.url: update for update in updates if update.op == "upsert"}
    there = {url: name for url, name in expected.classes.items() if url in last}
    assert {url: last[url].page_class or "" for url in there} == there
    assert {url: last[url].importance for url in there} == {
        url: expected.importance[url] for url in there
    }
    assert set(there.values()) == {"", *CLASSES}


def test_where_a_worker_may_not_know_of_classes_nobody_hears_of_them():
    expected, updates = told_with(())
    assert expected.classes == {}
    assert not any(isinstance(update.page_class, str | None) for update in updates)
