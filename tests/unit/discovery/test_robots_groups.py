"""Of a robots.txt, only the rules that are for us are parsed, and they say what the whole says."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from protego import Protego, _ruleset
from scrapy_freshet import robots_groups as client
from scrapy_freshet.robots import crawl_delay

from shared.discovery import robots_groups
from shared.discovery.robots import read_robots
from shared.discovery.robots_groups import own_group

AGENT = "Freshet-bot/1.0 (+https://example.org)"
COUNT = 300

PATHS = ["/", "/a", "/a/b?c=1", "/b$", "/index.html", "/a%2Fb", "/ä", "/x:y"]

NAMES = [
    *("*", "freshet", "Freshet-Bot", "f", "fresh*et", "freshet/1.0 ( *", "*-bot", "* (", "**", ""),
    *("other", "a:b", "FRESHET # ours", "bot", "Freshet-bot/1.0", "+https://example.org"),
]
VALUES = [
    *("/", "/", "/a", "/b$", "/*b", "/index.html", "/b # /a", "https://a.example/a", "/x:y", ""),
    *("4", "nan", "-1", "1e3", "1/10", "3/1m 0100-0200", "0400-0845", "0400 0845", "a  b"),
]
AGENT_FIELDS = [
    *("User-agent", "USERAGENT", "User agent", "User\tagent", "User  agent", "User\u00a0agent"),
    *("user-agent", "User-agents", "User -agent", "# User-agent"),
]
FIELDS = [
    *("Disallow", "Disallow", "dissalow", "Allow", "Sitemap", "site-map", "Host", "Crawl-delay"),
    *("crawl  delay", "Request-rate", "request rate", "Visit-time", "Noindex", "Clean-param"),
]
BETWEEN = [":", ": ", ": ", " : ", " ", "\t", "  ", "", ":\u00a0", "::"]
ENDS = ["\n", "\n", "\n\n", "\r\n", "\r", "\x0b", "\u2028", " \n", " # x\n", "\n"]
LINES = st.one_of(
    *(
        st.tuples(*map(st.sampled_from, (["", "", " "], fields, BETWEEN, values, ENDS)))
        for fields, values in ((AGENT_FIELDS, NAMES), (FIELDS, VALUES), (FIELDS, VALUES))
    ),
    st.tuples(st.sampled_from(AGENT_FIELDS + FIELDS), st.text(max_size=4), st.just("\n")),
    st.tuples(st.text(max_size=12)),
)
"""As they should be, as Protego takes them too, and others."""

TEXTS = st.lists(LINES.map("".join), min_size=1, max_size=10).map("".join)
AGENTS = [AGENT, "freshet", "*", "Freshetbot", "Mozilla/5.0 (compatible; Freshet-bot)"]


def answers(rules: Protego, agent: str) -> tuple[object, ...]:
    return (
        [rules.can_fetch(f"https://a.example{path}", agent) for path in PATHS],
        *(rules.crawl_delay(agent), rules.request_rate(agent), rules.visit_time(agent)),
        *(list(rules.sitemaps), rules.preferred_host),
    )


def as_rfc_9309_has_it(text: str) -> str:
    """The file for Protego, to which any field ends a list of agents: where what has ended one is
    no rule, its agents are named once more.
    """
    lines, agents, is_open = [], [], False
    for line in text.splitlines():
        field, _ = robots_groups._directive(line) or ("", "")
        if field == "user-agent":
            agents = agents if is_open else []
            lines += agents
            agents.append(line)
        is_open = field not in {"allow", "disallow"} and (is_open or field == "user-agent")
        lines.append(line)
    return "\n".join(lines)


@pytest.mark.slow(2)
@given(TEXTS, st.sampled_from(AGENTS))
@settings(max_examples=2_000, deadline=None)
@example("User-agent: f\nDisallow: /\nUser-agent: *\nAllow: /", "freshet")
@example("User-agent: freshet\nNoindex: /\nUser-agent: other\nDisallow: /", "freshet")
@example("User-agent: freshet\nCrawl-delay: 4\nUser-agent: other\nDisallow: /", "freshet")
@example("User-agent: freshet\nNoindex:/\nUser-agent: other\nDisallow: /", "freshet")
@example("User-agent: fresh*et\nDisallow: /\nNoindex: /", "freshet")
@example("User-agent: bot\nDisallow: /\nUser-agent: *\nDisallow: /a", "Freshetbot")
@example("User-agent: freshet # ours\nDisallow: /", "freshet")
@example("User-agent: * f\nDisallow: /\nUser-agent: f\nDisallow: /a", "a; f")
@example("Sitemap /a: b", "freshet")
@example("User-agent: freshet\nSitemap: /1\nUser-agent:\nDisallow: /", "freshet")
@example("Disallow: /\nUser-agent:\nUser-agent: *\nDisallow: /a", "freshet")
def test_the_rules_for_an_agent_say_what_the_whole_file_says(text, agent):
    assert answers(Protego.parse(own_group(text, agent)), agent) == answers(
        Protego.parse(as_rfc_9309_has_it(text)), agent
    )


def bomb(agents: list[str]) -> str:
    """Very many names of agents, all of whom very many rules are for."""
    return "\n".join([*agents, *(f"Disallow: /{n}" for n in range(COUNT))])


WORDS = ["User-agent: {}", "User-agent {}", "User\tagent {}", "User  agent {}", "useragent:{}"]
WORDS += ["User\u00a0agent {}", "user agent :{}", "\x1fUser-agent\u3000{}", "USER-AGENT\u2003: {}"]
OURS = [AGENT[a:b] for a in range(len(AGENT)) for b in range(a + 1, len(AGENT) + 1)][:COUNT]

BOMBS = {
    **{repr(word): bomb([word.format(f"a{n}") for n in range(COUNT)]) for word in WORDS},
    "names that are in ours": bomb([f"User-agent: {name}" for name in OURS]),
    "our name again and again": bomb([f"User-agent: freshet{'*' * n}" for n in range(COUNT)]),
    "everybody": bomb(["User-agent: *"] * COUNT),
    "groups of all": "\n".join(
        bomb([f"User-agent: {name}" for name in OURS[:30]]) for _ in range(10)
    ),
}


@pytest.fixture
def rules_kept(monkeypatch):
    """How many rules a parser has kept, a rule of several agents as often as it keeps it."""
    kept, disallow = [], _ruleset._RuleSet.disallow

    def note(rules, pattern):
        kept.append(pattern)
        disallow(rules, pattern)

    monkeypatch.setattr(_ruleset._RuleSet, "disallow", note)
    return kept


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize(
    "read",
    [
        pytest.param(read_robots, id="poller"),
        pytest.param(crawl_delay, id="scrapy"),
    ],
)
def test_a_rule_is_kept_once_however_many_agents_it_is_for(read, text, rules_kept):
    read(text.encode(), AGENT)
    assert len(rules_kept) <= text.count("Disallow")


def test_scrapys_crawlers_read_it_alike():
    one, other = (Path(module.__file__).read_text() for module in (robots_groups, client))
    assert one == other
