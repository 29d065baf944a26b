"""Reading [K]'s dataset from files in its published format, made here."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from services.replay import polite_crawling
from services.replay.polite_crawling import DatasetError, read_polite_crawling
from shared.policy.estimation.change_rates import change_rates_from_crawls

HISTORIES = {
    5: [[1.10396990740741, 0], [1.47311342592593, 1], [0.9, 0]],
    7: [[1.0, 1], [2.5, 1]],
    9: [[1.0, 0]],
    2: [],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four URLs on two hosts, one of them with complete observations."""
    urls = ['https://a.example/"x"\t5\t1', "https://b.example/ä\t7\t2"]
    urls += ["https://a.example/9\t9\t1", "https://b.example/2\t2\t2"]
    files = {
        "url_urlid_hostid.txt": urls,
        "host_hostid_isconstrained.txt": ["a.example\t1\t1", "b.example\t2\t0"],
        "urlid_imp.txt": ["5\t120", "9\t3", "7\t1000", "2\t44"],
        "urlid_offset_history.txt": [
            f"{key}\t5.5143055555555556\t{json.dumps(pairs)}" for key, pairs in HISTORIES.items()
        ],
        "urlid_chrate_compl_obs_hist.txt": ["9\t0.125"],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_every_column_arrives_at_its_url(folder: Path) -> None:
    data = read_polite_crawling(folder)
    assert data.url_id.tolist() == [5, 9, 7, 2]
    assert data.importance.tolist() == [120.0, 3.0, 1000.0, 44.0]
    assert data.complete.tolist() == [False, True, False, False]
    assert data.host_id.tolist() == [1, 1, 2, 2]
    assert data.constrained.tolist() == [True, True, False, False]
    crawls = np.array(HISTORIES[5])
    expected = change_rates_from_crawls(crawls[:, 0], crawls[:, 1], [0, 3])[0]
    assert data.change_rate[0] == expected
    assert data.change_rate[1] == 0.125
    assert data.change_rate[3] == pytest.approx(math.log(2) / 0.5)


def test_samples_are_urls_of_the_dataset(folder: Path) -> None:
    data = read_polite_crawling(folder)
    pages = data.sample(200, np.random.default_rng(1))
    assert set(pages.importance.tolist()) == {120.0, 3.0, 1000.0, 44.0}
    np.testing.assert_array_equal(pages.recall > 0.5, pages.importance == 3.0)
    few = data.sample(20, np.random.default_rng(1), only_complete=True)
    assert set(few.importance.tolist()) == {3.0}
    np.testing.assert_allclose(few.change_rate, 0.125)


def test_figures_need_no_hosts(folder: Path) -> None:
    (folder / "host_hostid_isconstrained.txt").unlink()
    data = read_polite_crawling(folder)
    assert data.host_id is not None
    assert data.constrained is None
    (folder / "url_urlid_hostid.txt").unlink()
    assert read_polite_crawling(folder).host_id is None


def test_without_complete_observations(folder: Path) -> None:
    (folder / "urlid_chrate_compl_obs_hist.txt").write_text("")
    data = read_polite_crawling(folder)
    assert not data.complete.any()
    with pytest.raises(DatasetError, match="no URL has complete"):
        data.sample(3, np.random.default_rng(1), only_complete=True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("urlid_imp.txt", "", "no URLs"),
        ("urlid_imp.txt", "5\t1\n5\t1\n", "URL_ID 5 is there twice"),
        ("urlid_imp.txt", "5\t1\n7\t-1\n", "line 2: -1 is no importance"),
        ("urlid_imp.txt", "5\tmuch\n", "Row #1.*much"),
        ("urlid_offset_history.txt", "5\t1.0\t[[1.0, 0]]\n8\t1.0\t[]\n", "id 8"),
        ("urlid_offset_history.txt", "5\t1.0\t[[1.0, 0]]\n", "URL_ID 7 of urlid_imp.txt"),
        ("urlid_offset_history.txt", "5\t[[1.0, 0]]\n", "line 1"),
        ("urlid_offset_history.txt", "5\t1.0\t[[1.0, 0\n", "line 1"),
        ("urlid_offset_history.txt", "5\t1.0\t[[1.0, 2]]\n", "line 1: a crawl is not"),
        ("urlid_chrate_compl_obs_hist.txt", "6\t0.5\n", "line 1: id 6"),
        ("url_urlid_hostid.txt", "u\t1\n", "url_urlid_hostid.txt"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(DatasetError, match=said):
        read_polite_crawling(folder)


def test_the_line_is_counted_from_the_top_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polite_crawling, "BATCH_PAGES", 2)
    lines = [f"{key}\t1.0\t[]\n" for key in (5, 7, 9, 8)]
    (folder / "urlid_offset_history.txt").write_text("".join(lines))
    with pytest.raises(DatasetError, match="line 4: id 8"):
        read_polite_crawling(folder)


@pytest.mark.parametrize(
    "name", ["urlid_imp.txt", "urlid_offset_history.txt", "urlid_chrate_compl_obs_hist.txt"]
)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DatasetError, match=f"{name}: there is no such file"):
        read_polite_crawling(folder)
