"""Which links may become pages, as far as they themselves say."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.contracts.identity import identify
from shared.discovery.patterns import Patterns
from shared.discovery.rules import DiscoveryRules
from shared.runtime.host_patterns import HostPatterns, host_pattern
from shared.runtime.settings import Settings, SettingsError, load_settings


def refusal(url, depth=None, **settings):
    rules = DiscoveryRules.of(Settings(**({"discovery_hosts": ["any"]} | settings)))
    return rules.refusal(identify(url), depth)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://intranet/",
        "http://router.lan:8080/",
        "https://localhost./",
    ],
)
def test_links_to_private_addresses_never_become_pages_however_they_are_written(url):
    assert refusal(url) == "private"
    assert refusal(url, discovery_hosts=["known"]) == "private"
    assert refusal(url, allow_private_hosts=True) is None


def test_a_host_is_named_by_itself_or_by_a_domain_that_it_is_below():
    named = ["example.com", "*.example.org", "b.example:8080"]

    def verdict(host):
        return refusal(f"https://{host}/", discovery_hosts=named)

    for host in ("example.com", "www.example.org", "a.b.example.org", "b.example:8080"):
        assert verdict(host) is None, host
    for host in ("www.example.com", "example.org", "badexample.org", "b.example", "c.example"):
        assert verdict(host) == "host", host
    # Whether a host is known is not for the URL to say.
    assert refusal("https://c.example/", discovery_hosts=["known"]) is None


def test_hosts_are_compared_as_pages_have_them():
    assert host_pattern("BÜCHER.example.") == identify("https://bücher.example/").host
    assert host_pattern("*.Example.ORG") == "*.example.org"
    assert not HostPatterns(["known"]).name("a.example")
    assert HostPatterns(["any"]).name("a.example")


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "*", "*.", "https://a.example", "a.example/", "a.*.example", "a b", "a@b.example"),
        *("*.*.example", "a..example", "a.example:0", "a.example?", "a.example#x"),
    ],
)
def test_a_host_that_is_none_is_refused_at_the_start_and_its_setting_named(monkeypatch, wrong):
    with pytest.raises(ValidationError, match="names no hosts"):
        Settings(discovery_hosts=["a.example", wrong])
    monkeypatch.setenv("FRESHET_DISCOVERY_HOSTS", f'["{wrong}"]')
    with pytest.raises(SettingsError, match=r"discovery_hosts\.0.*names no hosts"):
        load_settings()


def test_patterns_say_which_urls_are_wanted():
    wanted = {
        "discovery_include": ["https://*/news/*", "*.html"],
        "discovery_exclude": ["*/print/*", "*[?]session=*"],
    }
    assert refusal("https://a.example/news/1", **wanted) is None
    assert refusal("https://a.example/a.html", **wanted) is None
    for url in ("shop/1", "news/print/1", "news/1?session=7"):
        assert refusal(f"https://a.example/{url}", **wanted) == "pattern", url


def test_a_link_too_far_from_the_beginning_or_of_unknown_depth_is_left_out_where_that_counts():
    assert refusal("https://a.example/", 3, discovery_most_depth=3) is None
    assert refusal("https://a.example/", 4, discovery_most_depth=3) == "depth"
    assert refusal("https://a.example/", None, discovery_most_depth=3) == "depth"
    assert refusal("https://a.example/", None) is None
    assert refusal("https://a.example/", 10**6) is None


@pytest.mark.parametrize(
    ("path", "is_trap"),
    [
        ("/".join(f"d{n}" for n in range(20)), False),
        ("/".join(f"d{n}" for n in range(21)), True),
        ("a/b/a/b/a/b", False),
        ("a/b/a/b/a/b/a", True),
        ("////////////////////////x", False),
        ("x?" + "q" * 300, False),
        ("x?" + "q" * 301, True),
        ("calendar?year=2026&month=12&" * 20, True),
    ],
)
def test_what_sites_make_without_end_is_a_trap(path, is_trap):
    assert (refusal(f"https://a.example/{path}") == "trap") == is_trap


def test_patterns_take_time_in_proportion_to_what_they_look_at():
    """A pattern that makes a backtracking engine try every way to share the text out."""
    evil = Patterns([], ["*a*a*a*a*a*a*a*a*a*a*a*a*b"])
    url = "https://a.example/" + "a" * 2000
    steps = "(?>" if any("(?>" in p.pattern for p in evil._exclude) else "(?="
    # No star may be tried again: each is an atomic group, or stands for one.
    assert all(len(re.findall(re.escape(steps), p.pattern)) >= 12 for p in evil._exclude)
    assert evil.let_pass(url)
    assert not evil.let_pass(url + "b")


@given(st.text(max_size=60), st.text(min_size=1, max_size=20))
def test_any_pattern_can_be_asked_about_any_url(url, pattern):
    assert isinstance(Patterns([pattern], [pattern]).let_pass(url), bool)
