"""Which hosts lie below domains that have limits: of all hosts at once, by the rule for one."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.scheduler.state.host_domains import HostDomains, _hashes
from services.scheduler.state.host_names import HostNames
from services.scheduler.state.rows import NO_GROUP
from shared.contracts.identity import host_id_of
from shared.rules.host_groups import group_of

LABELS = st.sampled_from(["a", "b", "com", "example", "xn--p1ai", "1", "[::1]", "", "é"])
DOMAINS = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(bool)
HOSTS = st.tuples(DOMAINS, st.sampled_from(["", ":80", ":", "]:8080", "]"])).map("".join)


def by_the_rule(host, numbers):
    domain = group_of(host, numbers)
    return NO_GROUP if domain is None else numbers[domain]


def names_of(loaded, added):
    """Hosts that came with their shard, and others since."""
    names = HostNames.of(loaded, np.array([host_id_of(name) for name in loaded], np.int64))
    for name in added:
        names.add(name)
    return names


@given(
    st.lists(HOSTS, unique=True, max_size=12),
    st.integers(0, 12),
    st.lists(DOMAINS, unique=True, max_size=8),
)
@example(["a.example.com:80", "example.com.", "com", "[::1]:80", "b.[::1]"], 2, ["com", "[::1]"])
def test_each_is_of_the_nearest_one(hosts, loaded, domains):
    numbers = {domain: 1 + place for place, domain in enumerate(domains)}
    names = names_of(hosts[:loaded], hosts[loaded:])
    places = np.arange(len(hosts))[::-1].copy()
    found = HostDomains(numbers).numbers_of(names, places)
    assert found[::-1].tolist() == [by_the_rule(host, numbers) for host in hosts]


def test_names_that_are_hashed_alike_are_told_apart(monkeypatch):
    """Whoever owns a domain can make up as many names below it as it takes to find such a one."""

    def as_the_first(texts, starts, lengths, hashes):
        _hashes(texts, starts, lengths, hashes)
        hashes[1:] = hashes[0]

    monkeypatch.setattr("services.scheduler.state.host_domains._hashes", as_the_first)
    made = HostDomains({"example.org": 1, "example.com": 2})
    names = names_of(["example.org", "x.example.org"], [])
    assert made.numbers_of(names, np.arange(2)).tolist() == [1, 1]


@pytest.mark.parametrize("domains", [{}, {"example.com": 3}])
def test_of_no_hosts_there_are_no_numbers(domains):
    assert HostDomains(domains).numbers_of(HostNames(), np.empty(0, np.int64)).size == 0
