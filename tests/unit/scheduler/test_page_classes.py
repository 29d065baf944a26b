"""Classes of pages: weights multiply importance, shares are kept, and nobody starves."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from msgspec import UNSET
from reference_groups import shares_of
from reference_shard import DAY, World, rules
from test_shard_selection import START

from services.cli.commands.status import _classes
from services.scheduler.demand.class_reports import class_crawls
from services.scheduler.explain import page_state
from services.scheduler.flow.loading import shard_rules
from services.scheduler.picking import class_turns
from services.scheduler.picking.priority import terms_of
from services.scheduler.picking.scanning import evaluate
from services.scheduler.picking.turns import Turns
from services.scheduler.state.rules import ClassRules
from shared.contracts.messages import HostLimit, PageUpdate
from shared.runtime.clock import SystemClock
from shared.runtime.reason_shares import shares_by_queue
from shared.runtime.settings import SettingsError, load_settings
from shared.store.class_numbers import AS_IT_IS, MOST_CLASSES, NO_CLASS, PageClasses, TooManyClasses


def classed(classes, reasons=None, **other):
    """Rules of classes: name → (weight, share)."""
    found, lanes = rules(**other), 0
    made = []
    for name, (weight, share) in classes.items():
        lanes += share > 0.0
        made.append(ClassRules(name, weight, share, lanes if share > 0.0 else 0))
    picking = dataclasses.replace(found.picking, shares=shares_by_queue(reasons or {}))
    return dataclasses.replace(found, picking=picking, classes=tuple(made))


def say(world, identity, now, **fields):
    return world.shard.upsert(identity, PageUpdate("upsert", identity.url, **fields), now)


def priorities(world, now):
    shard = world.shard
    found = np.empty(shard.used)
    rows = np.arange(shard.used)
    terms = terms_of(shard.rules.picking)
    evaluate(shard.pages, shard.attempts.rows, rows, now, terms, found)
    return found


# Numbers.


def test_a_shard_gives_its_classes_numbers_until_there_are_too_many():
    classes = PageClasses({2: "news"})
    assert [classes.number_of(given) for given in (None, UNSET, "news")] == [NO_CLASS, AS_IT_IS, 2]
    assert [classes.number_of(name) for name in ("a", "b", "a")] == [1, 3, 1]
    assert classes.take_new() == {1: "a", 3: "b"}
    assert classes.take_new() == {}
    for number in range(4, MOST_CLASSES + 1):
        assert classes.number_of(f"more{number}") == number
    with pytest.raises(TooManyClasses, match="there may be 255: give its pages another one"):
        classes.number_of("one-too-many")
    assert classes.number_of("more255") == 255


def test_a_class_that_no_page_has_keeps_its_number_until_there_is_no_other():
    names = {n: f"class{n}" for n in range(1, MOST_CLASSES)}
    classes = PageClasses(names, unused={3, 5, 7})
    assert classes.number_of("first") == MOST_CLASSES
    assert classes.number_of("class3") == 3  # it is used again
    assert [classes.number_of(name) for name in ("second", "third", "second")] == [5, 7, 5]
    assert classes.take_new() == {MOST_CLASSES: "first", 5: "second", 7: "third"}
    for name in ("fourth", "class5"):
        with pytest.raises(TooManyClasses):
            classes.number_of(name)
    assert sorted(set(classes.names.values())) == sorted(classes.names.values())


def test_both_numbers_of_a_name_that_stands_twice_can_be_given_away():
    names = {n: f"class{max(n, 2)}" for n in range(1, MOST_CLASSES + 1)}
    classes = PageClasses(names, unused={1, 2})
    assert [classes.number_of(name) for name in ("first", "second")] == [1, 2]
    assert classes.number_of("class3") == 3


def test_a_name_that_stands_twice_in_the_table_is_one_class():
    shard = World(classed({"news": (2.0, 0.0)})).shard
    shard.classes.load({1: "news", 2: "news", 3: "other"}, np.array([1, 2, 2, 3, 0]))
    assert shard.classes.named() == {"news": [1, 2], "": [0, 3]}


# Weights.


def test_a_weight_multiplies_what_pages_are_worth_whenever_either_comes():
    world = World(classed({"news": (2.5, 0.0), "archive": (0.5, 0.0)}))
    pages = [
        world.add_page("a", n, START, importance=3.0, last_crawled_at=START - DAY) for n in range(4)
    ]
    plain = priorities(world, START)
    assert say(world, pages[0], START, page_class="news")
    assert say(world, pages[1], START, page_class="archive", importance=12.0)
    assert say(world, pages[2], START, page_class="unheard-of")
    assert priorities(world, START) == pytest.approx(plain * [2.5, 2.0, 1.0, 1.0], rel=1e-6)
    assert say(world, pages[0], START + 1, importance=6.0)
    assert say(world, pages[1], START + 1, page_class="news")
    assert say(world, pages[1], START, page_class="archive") is False
    assert priorities(world, START) == pytest.approx(plain * [5.0, 10.0, 1.0, 1.0], rel=1e-6)
    told = page_state(world.shard, pages[1], START, 0.0)
    assert (told["page_class"], told["class_weight"]) == ("news", 2.5)
    assert told["importance"] == pytest.approx(12.0, rel=1e-6)
    assert say(world, pages[1], START + 2, page_class=None)
    assert priorities(world, START) == pytest.approx(plain * [5.0, 4.0, 1.0, 1.0], rel=1e-6)
    assert page_state(world.shard, pages[1], START, 0.0)["page_class"] is None


def test_what_is_one_class_too_many_changes_nothing():
    world = World(classed({}))
    page = world.add_page("a", 1, START, importance=3.0)
    for number in range(MOST_CLASSES):
        assert say(world, page, START + number, page_class=f"class{number}")
    assert not say(world, page, START + 999, page_class="more", importance=9.0)
    told = page_state(world.shard, page, START, 0.0)
    assert (told["page_class"], told["importance"]) == ("class254", 3.0)
    assert not say(world, world.identities[0]._replace(page_id=7), START, page_class="more")
    assert world.shard.count == 1


def test_pages_are_counted_by_class_as_they_come_change_and_go():
    world = World(classed({"news": (1.0, 0.0), "partner": (2.0, 0.3)}))
    pages = [world.add_page("a", n, START) for n in range(6)]
    for page, name in zip(pages, ("news", "news", "partner", "spare", None, "news"), strict=True):
        say(world, page, START + 1, page_class=name)
    world.remove_page(pages[5].page_id, START + 2)
    numbers = world.shard.records["page_class"][[0, 0, 2, 3, 4]]
    world.shard.notes.note_classes(np.bincount(numbers, minlength=MOST_CLASSES + 1))
    found = [(of.page_class, of.pages, of.crawls_per_second, of.share, of.weight)
             for of in class_crawls(world.shard, 2.0)]  # fmt: skip
    assert found == [("news", 2, 1.0, 0.0, 1.0), ("partner", 1, 0.5, 0.3, 2.0), ("", 2, 1.0, 0, 1)]
    assert {of.crawls_per_second for of in class_crawls(world.shard, 2.0)} == {0.0}
    shown = [{"page_class": n, "pages": p, "crawls_per_second": r, "kept": k, "weight": w}
             for n, p, r, k, w in found]  # fmt: skip
    assert _classes(shown) == (
        "news 40.0% (2 pages), partner 20.0% (1 pages, weight 2, kept 0.3), others 40.0% (2 pages)"
    )
    assert class_crawls(World(rules()).shard, 1.0) == []


# Shares.


def crowded(classes, per_class=300, hosts=30, **other):
    """More pages than slots of each class, and of none; those of the last are worth the least."""
    world = World(classed(classes, **{"host_rate": 1000.0} | other))
    for place, name in enumerate((None, *classes)):
        for number in range(per_class):
            page = world.add_page(
                f"h{number % hosts}",
                f"{name}{number}",
                START - DAY,
                importance=10.0 ** (-3 * place) * (1.0 + number % 17),
                last_crawled_at=START - 20 * DAY - number,
            )
            say(world, page, START - DAY, page_class=name)
    return world


def counted(world, picks):
    numbers = world.shard.records["page_class"][picks["row"][picks["row"] >= 0]]
    return Counter(world.shard.classes.name_of(int(number)) for number in numbers)


def filled(world, seconds, rate, per_tick=3.0, least=0.0):
    """What each class got, tick after tick."""
    found = []
    for tick in range(round(seconds / per_tick)):
        slots = START + per_tick * tick + np.arange(1, round(rate * per_tick) + 1) / rate
        found.append(counted(world, world.shard.select(slots, rate, least)))
    return found


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(
    ("shares", "pages"),
    [((0.3, 0.2), 300), ((0.6, 0.05), 300), ((0.1, 0.85), 300), ((0.3, 0.2), 3000)],
)
def test_each_class_gets_the_part_that_was_asked_for_whatever_others_are_worth(shares, pages):
    classes = {"partner": (1.0, shares[0]), "archive": (1.0, shares[1])}
    world = crowded(classes, per_class=pages)
    total = Counter()
    for found in filled(world, 15.0, 20.0):
        total += found
        slots = total.total()
        assert abs(total["partner"] - shares[0] * slots) <= 1.0 + 3.0 * shares[0]
        assert abs(total["archive"] - shares[1] * slots) <= 1.0 + 3.0 * shares[1]
    assert total.total() == 300


def test_what_is_worth_more_gets_more_than_its_part():
    world = crowded({"partner": (1e6, 0.1)})
    assert sum(filled(world, 12.0, 20.0), Counter()) == {"partner": 240}


def test_what_a_class_cannot_use_goes_to_the_others_and_it_saves_nothing():
    world = crowded({"partner": (1.0, 0.5), "archive": (1.0, 0.3)}, per_class=60)
    found = filled(world, 9.0, 20.0)
    assert sum(found, Counter()) == {None: 60, "partner": 60, "archive": 60}
    for number in range(40):
        page = world.add_page("late", number, START + 9.0, importance=1e-9)
        say(world, page, START + 9.0, page_class="archive")
        world.add_page("more", number, START + 9.0, importance=5.0)
    slots = START + 10.0 + np.arange(1, 21) / 20.0
    # New pages go first among all; of the slots of its own, the class gets no more than its part.
    assert counted(world, world.shard.select(slots, 20.0, 0.0))["archive"] in (12, 13)


@pytest.mark.parametrize("touched", [0, 60])
def test_news_of_a_page_count_at_once_however_many_its_class_has(touched, monkeypatch):
    monkeypatch.setattr(class_turns, "_MOST_TOUCHED", 50)
    world = crowded({"partner": (1.0, 0.3)}, per_class=3000)
    world.shard.select(START + np.arange(1, 11) / 10.0, 10.0, 0.0)
    pages = [page for page in world.identities if "partner" in page.url]
    worth = priorities(world, START + 1)
    worth[worth == 0.0] = np.inf
    late = min(pages, key=lambda page: worth[world.shard.row_of(page.page_id)])
    for page in pages[:touched]:
        say(world, page, START + 1)
    say(world, late, START + 2, importance=0.9)
    picks = world.shard.select(START + 2.0 + np.arange(1, 5) / 10.0, 10.0, 0.0)
    own = picks["row"][picks["lane"] == 1]
    assert world.shard.url_of(int(own[0])) == late.url


@pytest.mark.parametrize("shares", [[0.15, 0.5, 0.25, 0.1], [0.5, 0.5], [0.86, *[0.02] * 7]])
def test_turns_keep_to_their_parts_and_who_was_idle_has_saved_nothing(shares):
    turns, taken = Turns(shares), Counter()
    for slot in range(2000):
        who = turns.next(0)
        taken[who] += 1
        turns.take(who)
        for who, share in enumerate(shares):
            assert abs(taken[who] - share * (slot + 1)) <= 1.0 + len(shares) * share
    for _ in range(1000):
        turns.take(turns.next(1 << 1))
    after = []
    for _ in range(20):
        after.append(turns.next(0))
        turns.take(after[-1])
    assert abs(after.count(1) - 20 * shares[1]) <= 1.0 + len(shares) * shares[1]


@pytest.mark.parametrize("every", range(2, 21))
def test_turns_fall_in_step_with_nothing(every):
    """Whatever comes every so many slots meets each sharer about as often as its share says."""
    shares = [0.2, 0.5, 0.25, 0.05]
    turns, met = Turns(shares), Counter()
    for slot in range(every * 2000):
        who = turns.next(0)
        turns.take(who)
        if slot % every == 0:
            met[who] += 1
    for who, share in enumerate(shares):
        assert met[who] / 2000 >= 0.5 * share


def test_no_share_beats_a_hosts_limit_and_no_slot_is_lost_by_it():
    world = crowded({"partner": (1.0, 0.5)}, hosts=20, host_rate=0.4)
    for number in range(0, 20, 2):
        delayed = HostLimit(f"h{number}.example", crawl_delay_seconds=5.0, only="crawl-delay")
        world.shard.take_host_limit(delayed, START)
    times, total = {}, Counter()
    for tick in range(30):
        slots = START + 2.0 * tick + np.arange(1, 9) / 4.0
        picks = world.shard.select(slots, 4.0, 0.0)
        total += counted(world, picks)
        for pick in picks:
            times.setdefault(int(world.shard.pages["host"][pick["row"]]), []).append(pick["time"])
    assert total.total() == 240
    assert abs(total["partner"] - 120) <= 3
    for host, asked_at in times.items():
        delay = 5.0 if int(world.shard.hosts.names[host][1:].split(".")[0]) % 2 == 0 else 0.0
        crawled = np.sort(asked_at)
        assert np.diff(crawled).min(initial=np.inf) >= delay - 1e-6
        for first in range(crawled.size):
            window = crawled[first:] - crawled[first]
            assert np.all(np.arange(1, window.size + 1) <= 2 + 0.4 * window + 1e-3)


def waiting(held_by):
    """A class of whose pages the most urgent ones, far more than can be candidates, wait."""
    world = World(classed({"partner": (1.0, 0.5)}, host_rate=1000.0))
    slow = [f"slow{n % 40}.group" if held_by != "one host" else "slow" for n in range(2_000)]
    for number, host in enumerate(slow):
        page = world.add_page(host, number, START - DAY, importance=1e4 - number)
        say(world, page, START - DAY, page_class="partner")
    for number in range(2_000):
        aged = START - 20 * DAY - number
        name, worth = ("partner", 1e-3) if number < 1_000 else (None, 10.0)
        host = f"h{number % 30}"
        page = world.add_page(
            host, f"o{number}", START - DAY, importance=worth, last_crawled_at=aged
        )
        say(world, page, START - DAY, page_class=name)
    for host in {f"{host}.example" for host in slow}:
        rate = {"one host": 0.1, "many hosts": 0.01}.get(held_by)
        world.shard.limit_host(host, rate, None, START)
        if held_by == "open requests":
            world.shard.take_host_limit(HostLimit(host, max_open_requests=1, only="open"), START)
    if held_by == "their group":
        world.limit_groups(shares_of("group.example", 0.5, {0: 1.0}, START))
    return world


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("held_by", ["one host", "many hosts", "their group", "open requests"])
def test_a_class_whose_best_pages_wait_has_its_part_for_the_others(held_by, monkeypatch):
    found = []
    for spare in (class_turns.SPARE_CANDIDATES, 1_000_000):
        monkeypatch.setattr(class_turns, "SPARE_CANDIDATES", spare)
        world, rows = waiting(held_by), []
        for tick in range(12):
            slots = START + 1.0 + tick + np.arange(1, 21) / 20.0
            world.shard.groups.follow(world.limits, 20.0, float(slots[0]))
            picks = world.shard.select(slots, 20.0, 0.0)
            rows += picks["row"][picks["lane"] == 1].tolist()
        found.append(rows)
    # All candidates are looked at, and the best that can be crawled is the best of all that can.
    assert found[0] == found[1]
    assert abs(len(found[0]) - 120) <= 2


def test_within_its_part_urgent_new_and_late_pages_of_a_class_go_first():
    world = crowded({"archive": (1.0, 0.25)}, max_age_days=1000.0)
    pages = [page for page in world.identities if "archive" in page.url]
    for number in range(20):
        other = world.add_page("a", f"other{number}", START, importance=1e9)
        say(world, other, START, urgent=True)
    new = world.add_page("a", "new", START, importance=1e-9)
    say(world, new, START, page_class="archive")
    say(world, pages[7], START, max_age_days=1.0)
    say(world, pages[9], START, urgent=True)
    slots = START + np.arange(1, 13) / 20.0
    picks = world.shard.select(slots, 20.0, 0.0)
    ours = [world.shard.url_of(int(row)) for row in picks["row"][picks["lane"] == 1]]
    assert ours == [pages[9].url, new.url, pages[7].url]


def test_reasons_share_what_is_kept_for_no_class():
    world = crowded({"partner": (1.0, 0.4)}, reasons={"new": 0.5, "value": 0.5})
    for number in range(200):
        world.add_page("fresh", number, START, importance=1.0)
    picks = world.shard.select(START + np.arange(1, 101) / 50.0, 50.0, 0.0)
    assert counted(world, picks)["partner"] in (39, 40, 41)
    others = picks[picks["lane"] == 0]
    tiers = Counter(others["tier"].tolist())
    assert abs(tiers[3] - others.size / 2) <= 1
    assert set(picks["tier"][picks["lane"] == 1].tolist()) == {0}


@pytest.mark.parametrize(
    ("classes", "fault"),
    [
        ({"a": {"share": 0.6}, "b": {"share": 0.5}}, "must leave 0.05 to all"),
        ({"a": {"share": -0.1}}, "classes.a.share"),
        ({"a": {"weight": 0.0}}, "classes.a.weight"),
        ({"a": {"wait": 2.0}}, "classes.a.wait"),
        ({"No": {"weight": 2.0}}, "classes.No"),
        ({f"c{n}": {"share": 0.01} for n in range(8)}, "8 classes have shares, and 7 may"),
        ({f"c{n}": {} for n in range(33)}, "at most 32"),
    ],
)
def test_terms_that_cannot_be_are_refused_with_their_name(classes, fault):
    with pytest.raises(SettingsError, match=fault):
        load_settings(classes=classes)


def test_terms_of_the_environment_are_the_shards_rules(monkeypatch):
    said = '{"news": {"weight": 2.0}, "partner": {"share": 0.3}, "b": {"share": 0.1}}'
    monkeypatch.setenv("FRESHET_CLASSES", said)
    assert shard_rules(load_settings(), SystemClock()).classes == (
        ClassRules("news", 2.0, 0.0, 0),
        ClassRules("partner", 1.0, 0.3, 1),
        ClassRules("b", 1.0, 0.1, 2),
    )
