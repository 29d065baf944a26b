"""What the pages of each host are crawled for: said by domain, checked before anything starts."""

import pytest

from shared.contracts.objectives import FRESHNESS, HARMONIC
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives
from shared.runtime.settings import SettingsError, load_settings

TOLD = {"example.com": "harmonic", "docs.example.com": {"age": 0.3}, "old.example.com": "freshness"}


def test_the_nearest_domain_counts_for_a_host():
    objectives = HostObjectives(TOLD)
    assert objectives
    assert objectives.of("example.com") == objectives.of("a.example.com:8080") == HARMONIC
    assert objectives.of("docs.example.com") == objectives.of("v1.docs.example.com") == 30
    assert objectives.of("old.example.com") == objectives.of("example.org") == FRESHNESS
    assert HostObjectives({"default": {"age": 1}, **TOLD}).of("example.org") == 100
    assert not FRESHNESS_ALONE
    assert not HostObjectives({"default": "freshness", "example.com": {"age": 0}})


def test_names_are_compared_as_hosts_are():
    settings = load_settings(objectives={"Bücher.Example": "harmonic", "default": "freshness"})
    assert settings.objectives == {"xn--bcher-kva.example": "harmonic", "default": "freshness"}


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"example.com": "fresh"}, "none of freshness, harmonic"),
        ({"example.com": {"ages": 0.3}}, "none of freshness, harmonic"),
        ({"example.com": {"age": 1.5}}, "between 0 and 1"),
        ({"default": {"age": 0.333}}, "whole hundredths"),
        ({"*.example.com": "harmonic"}, "name a domain"),
        ({"example.com:8080": "harmonic"}, "name a domain"),
        ({"any": "harmonic"}, "name a domain"),
        ({"no host/": "harmonic"}, "names no hosts"),
    ],
)
def test_what_is_no_objective_is_refused_by_the_name_of_the_setting(told, fault):
    with pytest.raises(SettingsError, match=rf"objectives: .*{fault}"):
        load_settings(objectives=told)
