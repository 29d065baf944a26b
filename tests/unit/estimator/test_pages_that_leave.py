"""Pages that leave memory for others, and what is announced of those that come back."""

import numpy as np
import pytest

from services.estimator import metrics
from services.estimator import shard as module
from services.estimator.application import ShardEffects
from services.estimator.learning import material_pages
from services.estimator.residence import make_room
from services.estimator.shard import Shard
from shared.contracts.identity import identify
from shared.store.columns import LearningColumns, PageColumns, SignalsBySource
from shared.store.directories import directory_of
from shared.store.history import Rings, pack, unpack
from shared.store.learned_pages import LearnedPages
from shared.store.page_status import ACTIVE, GONE
from shared.store.source_times import end_of_second, set_time_of_source, time_of_source

URLS = [f"https://h{n % 3}.example/d{n % 2}/{n}" for n in range(40)]
IDS = np.array([identify(url).page_id for url in URLS])


class Stored:
    """Pages as the database has them: those of a shard when this was made."""

    def __init__(self, shard):
        self.asked = []
        self.urls = dict(zip(IDS.tolist(), URLS, strict=True))
        self.keep(shard)

    def keep(self, shard):
        """As a commit does."""
        self.pages, self.rings = shard.pages.copy(), pack(shard.rings, np.arange(len(shard.pages)))
        self.ages = shard.by_source.ages[shard.pages["several"]].copy()
        self.host_ids = shard.hosts.records["host_id"][shard.pages["host"]]

    def read_pages(self, _shard, _epoch, page_ids, _directories=None):
        self.asked.append(set(page_ids.tolist()))
        rows = np.flatnonzero(np.isin(self.pages["page_id"], page_ids))
        rows = rows[np.argsort(self.pages["page_id"][rows])]
        pages = self.pages[rows]
        several = np.flatnonzero(pages["several"])
        names = [name.removesuffix("_ids") for name in PageColumns.__dataclass_fields__]
        columns = {name: pages[name].copy() for name in names[2:]}
        return LearnedPages(
            PageColumns(pages["page_id"].copy(), self.host_ids[rows], **columns),
            LearningColumns(*(pages[n].copy() for n in LearningColumns.__dataclass_fields__)),
            Rings(*(column[rows] for column in unpack(self.rings))),
            SignalsBySource(several, self.ages[rows][several]),
            np.array([directory_of(self.urls[k]) for k in pages["page_id"].tolist()], np.uint16),
        )


def shard_of_pages():
    shard = Shard(0)
    shard.add_pages([(identify(url), float(row)) for row, url in enumerate(URLS)])
    rows = np.arange(len(URLS))
    shard.pages["importance"] = rows
    shard.pages["unsignalled_change_rate"] = shard.pages["signal_rate"] = 0.1 + rows
    shard.pages["signal_evidence"] = 0.5
    for _, announced in (
        ("unsignalled_change_rate", "announced_change_rate"),
        ("signal_evidence", "announced_evidence"),
        ("signal_rate", "announced_signal_rate"),
    ):
        shard.pages[announced] = shard.pages[_]
    shard.rings.seen[rows] = 1 + rows % 5
    shard.rings.interval_days[rows, 0] = rows
    shard.pages["last_signal_at"][7] = 100.5
    shard.pages["several"][7] = shard.by_source.add(np.full((1, 4), 500, np.uint32))[0]
    entry = shard.pages["several"][7]
    set_time_of_source(shard.by_source.ages, entry, end_of_second(100.5), 2, 100.25)
    return shard


def with_source(shard):
    shard._source = Stored(shard)
    return shard._source


def state_of(shard, page_id):
    [row] = shard.rows_of(np.array([page_id])).tolist()
    page = shard.pages[row]
    names = [n for n in page.dtype.names if n not in ("several", "is_read", "host")]
    times = []
    if page["several"]:
        end = end_of_second(page["last_signal_at"])
        times = [time_of_source(shard.by_source.ages, page["several"], end, s) for s in range(4)]
    rings = [column[row].tolist() for column in shard.rings]
    return [page[name].item() for name in names], rings, times


def test_those_named_last_stay_and_the_others_come_back_as_they_were():
    shard = shard_of_pages()
    before = {page_id: state_of(shard, page_id) for page_id in IDS.tolist()}
    source = with_source(shard)
    named = IDS[[3, 7, 20]]
    shard.rows_of(named)
    evicted = metrics.EVICTED._value.get()
    assert make_room([shard], 4) == 37
    assert metrics.EVICTED._value.get() == evicted + 37
    assert set(shard.pages["page_id"].tolist()) == set(named.tolist())
    assert not shard.is_whole
    for page_id in IDS.tolist():
        assert state_of(shard, page_id) == before[page_id]
    assert not any(set(named.tolist()) & asked for asked in source.asked)
    assert sorted(shard.pages["page_id"].tolist()) == sorted(IDS.tolist())


def test_where_there_is_room_nobody_leaves():
    shard = shard_of_pages()
    assert make_room([shard], len(URLS)) == 0
    assert shard.is_whole


def test_room_is_made_among_all_shards_by_who_was_named_last():
    old, new = shard_of_pages(), shard_of_pages()
    for shard in (old, new):
        with_source(shard)
    new.rows_of(IDS)
    make_room([old, new], 40)
    assert len(old.pages) == 0
    assert len(new.pages) == 30


def test_of_a_page_that_is_not_there_the_database_is_asked_once_until_it_is_added():
    shard = shard_of_pages()
    source = with_source(shard)
    shard.keep(np.empty(0, np.int64))
    new = identify("https://h0.example/new")
    unknown = np.array([new.page_id])
    for _ in range(3):
        assert shard.rows_of(unknown).tolist() == [-1]
    assert source.asked == [{new.page_id}]
    shard.add_pages([(new, 1.0)])
    source.urls[new.page_id] = new.url
    source.keep(shard)
    shard.keep(np.empty(0, np.int64))
    assert shard.rows_of(unknown).tolist() == [0]


@pytest.mark.parametrize("is_evicted", [False, True])
def test_what_schedulers_know_of_a_page_never_drifts_away(is_evicted):
    shard = shard_of_pages()
    source = with_source(shard)
    told = shard.pages["signal_rate"].copy()
    furthest = 0.0
    for _ in range(60):
        rows = shard.rows_of(IDS)
        shard.pages["signal_rate"][rows] *= 1.01
        done = ShardEffects.nothing(shard)
        object.__setattr__(done, "touched", rows)
        announced = np.isin(rows, material_pages(done, 0.05))
        told[announced] = shard.pages["signal_rate"][rows[announced]]
        furthest = max(furthest, np.abs(shard.pages["signal_rate"][rows] / told - 1.0).max())
        source.keep(shard)
        if is_evicted:
            shard.keep(np.empty(0, np.int64))
    assert furthest < 1.05**2 - 1.0
    # And little is said: a change of half is about nine steps.
    assert furthest > 0.03


def test_a_page_that_was_away_is_announced_when_it_is_back():
    shard = shard_of_pages()
    source = with_source(shard)
    shard.pages["status"][5] = GONE
    source.keep(shard)
    shard.keep(np.empty(0, np.int64))
    rows = shard.rows_of(IDS[[5, 6]])
    shard.pages["status"][rows] = ACTIVE
    done = ShardEffects.nothing(shard)
    object.__setattr__(done, "touched", rows)
    assert material_pages(done, 0.05).tolist() == rows[:1].tolist()


def test_the_pages_of_a_large_host_are_read_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "READ_AT_ONCE", 5)
    shard = shard_of_pages()
    stored, host = with_source(shard), shard.hosts.row("h1.example")
    of_host = stored.pages["page_id"][stored.pages["host"] == host]
    stored.pages_of_host = lambda _shard, _epoch, _host_id: of_host
    shard.keep(np.flatnonzero(np.isin(shard.pages["page_id"], of_host[:2])))
    shard.read_host(host)
    assert np.isin(of_host, shard.pages["page_id"]).all()
    assert sorted(map(len, stored.asked)) == [1, 5, 5]
    assert set.union(*stored.asked) == set(of_host[2:].tolist())


def test_some_of_the_pages_that_were_read_are_as_if_they_were_read_alone():
    shard = shard_of_pages()
    ids, stored = np.sort(IDS), Stored(shard)
    for which in (IDS[7] <= ids, IDS[7] >= ids, IDS[7] != ids, np.zeros(ids.size, np.bool_)):
        chosen, alone = (
            stored.read_pages(0, 0, ids).chosen(which),
            stored.read_pages(0, 0, ids[which]),
        )
        for mine, theirs in zip(chosen.parts, alone.parts, strict=True):
            assert columns_of(mine) == columns_of(theirs)


def columns_of(part):
    if isinstance(part, np.ndarray):
        return part.tolist()
    names = part._fields if isinstance(part, Rings) else part.__dataclass_fields__
    return [np.asarray(getattr(part, name)).tolist() for name in names]
