"""The names of many pages at once are those that `identify` gives each of them."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from url_samples import plain_url, urls

from shared.contracts.fields import MAX_URL_LENGTH
from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.store import import_names
from shared.store.import_names import name_pages


def named(texts, wanted=None, offset=0):
    """What each text is called, or why it is no page; None: it was not asked for."""
    array = pa.array(["https://other.example/"] * offset + list(texts), pa.string())[offset:]
    names = name_pages(array, np.ones(len(texts), bool) if wanted is None else wanted)
    found = []
    for row in range(len(texts)):
        if row in names.refused:
            assert names.host[row] == -1
            found.append(names.refused[row])
        elif names.host[row] < 0:
            found.append(None)
        else:
            host = names.hosts[names.host[row]]
            found.append(PageIdentity(names.urls.text(row), host, int(names.page_ids[row])))
    assert len(set(names.hosts)) == len(names.hosts)
    return found


def one_by_one(texts):
    """The same by `identify`."""
    found = []
    for text in texts:
        try:
            found.append(identify(text))
        except BadUrl as error:
            found.append(str(error))
    return found


@pytest.fixture
def handed_over(monkeypatch):
    """The URLs that are not found to be canonical as they stand."""
    seen = []

    def identified(url):
        seen.append(url)
        return identify(url)

    monkeypatch.setattr(import_names, "identify", identified)
    return seen


@pytest.mark.slow(1)
def test_urls_that_look_canonical_are_named_as_one_by_one():
    rng = random.Random(11)
    texts = [plain_url(rng) for _ in range(20_000)]
    assert named(texts) == one_by_one(texts)
    # Whatever stands beside one in memory is not a part of it.
    assert [named([text])[0] for text in texts[:500]] == one_by_one(texts[:500])


@pytest.mark.slow(3)
@settings(max_examples=500, deadline=None)
@given(st.lists(urls.filter(lambda text: text.isprintable()), max_size=6), st.integers(0, 3))
def test_any_texts_are_named_as_one_by_one(texts, offset):
    assert named(texts, offset=offset) == one_by_one(texts)


EDGES = [
    *("http://a.de", "http://a.de/", "http:/a.de/", "http", "https", "http://", "https://", ""),
    *("https://a/", "https://a./", "https://.a.de/", "https://a..de/", "https://a.d-/x"),
    *("https://a.-d/x", "https://-a.de/", "https://a-.de/", "https://a-b.de/", "https://a--b.de/"),
    *("https://a.1de/", "https://a.de1/", "https://1.de/", "https://1.2.3.4/", "https://a_b.de/"),
    *(
        "https://a.de/.",
        "https://a.de/./b",
        "https://a.de/..",
        "https://a.de/.b",
        "https://a.de/b.",
    ),
    *("https://a.de//", "https://a.de/?", "https://a.de/??", "https://a.de/?/.?", "https://a.de?b"),
    *("https://a.de/?/./..&+=", "https://a.de/#", "https://a.de/a b", "https://a.de/\\"),
    *("HTTPS://a.de/", "https://A.de/", "https://a.de:80/", "https://u@a.de/", "https://a.de/%41"),
    *("https://bücher.example/ä", "https://a.de/ä", "https://ä.de/", "ftp://a.de/"),
    f"https://{'a' * 63}.de/",
    f"https://{'a' * 64}.de/",
    f"https://{'a.' * 125}com/",
    f"https://{'a.' * 126}com/",
    "https://a.de/".ljust(MAX_URL_LENGTH, "b"),
    "https://a.de/".ljust(MAX_URL_LENGTH + 1, "b"),
]


def test_edges_are_named_as_one_by_one():
    assert named(EDGES) == one_by_one(EDGES)


def test_what_is_canonical_as_it_stands_is_found_where_it_is(handed_over):
    texts = ["https://a.example/b/c.html?d=e&f", "http://x-y.a.example//", "https://A.example/"]
    assert named(texts) == one_by_one(texts)
    assert handed_over == texts[2:]


def test_rows_that_are_not_wanted_have_no_name(handed_over):
    texts = ["https://a.example/", "no URL", "https://b.example/", "HTTPS://c.example/"]
    assert named(texts, np.array([True, False, False, False])) == [identify(texts[0]), *[None] * 3]
    assert handed_over == []


def test_no_row_has_no_name():
    assert named([]) == []
