"""Reading [K]'s dataset, PoliteCrawling: what Bing's crawler saw of 18.5 million URLs in 14 weeks.

Files of tab-separated columns without a header, as their publishers describe them:

- `urlid_imp.txt`: URL_ID, importance score;
- `urlid_offset_history.txt`: URL_ID, days until the first crawl, and a JSON list of [days since the
  crawl before, 1 if changed since then else 0];
- `urlid_chrate_compl_obs_hist.txt`: URL_ID, changes a day; the URLs with complete observations;
- `url_urlid_hostid.txt`: URL, URL_ID, Host_ID;
- `host_hostid_isconstrained.txt`: host, Host_ID, 1 if the host limits its crawls else 0.

The last two may be absent: no figure needs them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from shared.policy.estimation.change_rates import change_rates_from_crawls
from shared.policy.model import PageParameters

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

IMPORTANCE = "urlid_imp.txt"
HISTORY = "urlid_offset_history.txt"
COMPLETE = "urlid_chrate_compl_obs_hist.txt"
URLS = "url_urlid_hostid.txt"
HOSTS = "host_hostid_isconstrained.txt"

BATCH_PAGES = 5000
"""Histories held in memory at a time; each has about a hundred crawls."""

_HISTORY_LIST = msgspec.json.Decoder(list[tuple[float, float]])


class DatasetError(ValueError):
    """A file of the dataset that cannot be read; the text names file and line."""


@dataclass(frozen=True, slots=True)
class PoliteCrawling:
    """The dataset's URLs; one row each, in the order of `urlid_imp.txt`."""

    url_id: Integers
    importance: Floats
    change_rate: Floats
    """Per day: published for URLs with complete observations, [K] equation 10 for the others."""
    complete: Mask
    """Whether sitemaps told of every change."""
    host_id: Integers | None
    """None: `url_urlid_hostid.txt` is not there."""
    constrained: Mask | None
    """Whether the URL's host limits its crawls; None: the files of hosts are not there."""

    def __len__(self) -> int:
        return int(self.url_id.size)

    def sample(
        self, pages: int, rng: np.random.Generator, *, only_complete: bool = False
    ) -> PageParameters:
        """`pages` URLs drawn with replacement, as [K] does for its figure 3.

        Raises:
            DatasetError: `only_complete`, and no URL has complete observations.
        """
        rows = np.flatnonzero(self.complete) if only_complete else np.arange(len(self))
        if rows.size == 0:
            raise DatasetError(f"{COMPLETE}: no URL has complete observations, which k2 is about")
        drawn = rng.choice(rows, pages)
        recall = self.complete[drawn].astype(np.float64)
        return PageParameters.from_rates(
            self.importance[drawn], self.change_rate[drawn], recall, 0.0
        )


def read_polite_crawling(
    folder: Path, told: Callable[[float], None] | None = None
) -> PoliteCrawling:
    """Read the unpacked dataset, learning the change rates of URLs without complete observations.

    `told` hears the share of the histories that is read.

    Raises:
        DatasetError: a file is missing, or a line of it is not what the format says.
    """
    url_id, importance = _two_columns(folder / IMPORTANCE, "importance")
    if url_id.size == 0:
        raise DatasetError(f"{folder / IMPORTANCE}: there are no URLs in it")
    order = np.argsort(url_id, kind="stable")
    twice = np.flatnonzero(np.diff(url_id[order]) == 0)
    if twice.size:
        raise DatasetError(
            f"{folder / IMPORTANCE}: URL_ID {url_id[order][twice[0]]} is there twice"
        )
    known = _Rows(url_id[order], order)
    change_rate = np.full(url_id.size, np.nan)
    for rows, rates in _learned(folder / HISTORY, known, told):
        change_rate[rows] = rates
    complete = np.zeros(url_id.size, np.bool_)
    complete_id, published = _two_columns(folder / COMPLETE, "change rate")
    rows = known.of(complete_id, folder / COMPLETE)
    change_rate[rows], complete[rows] = published, True
    unknown = np.flatnonzero(np.isnan(change_rate))
    if unknown.size:
        raise DatasetError(
            f"{folder / HISTORY}: URL_ID {url_id[unknown[0]]} of {IMPORTANCE} is not there, "
            f"nor are {unknown.size - 1} others; is the file whole?"
        )
    host_id, constrained = _hosts(folder, known)
    return PoliteCrawling(url_id, importance, change_rate, complete, host_id, constrained)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of ids."""

    ids: Integers
    """Rising."""
    rows: Integers

    def of(self, ids: Integers, file: Path, first: int = 1) -> Integers:
        """Rows of `ids`, of which the first is on line `first` of `file`.

        Raises:
            DatasetError: an id is not among them.
        """
        places = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        strange = np.flatnonzero(self.ids[places] != ids)
        if strange.size:
            raise DatasetError(
                f"{file}, line {first + strange[0]}: id {ids[strange[0]]} is not one of the URLs"
            )
        return self.rows[places]


def _table(file: Path, columns: dict[str, pa.DataType], wanted: list[str]) -> pa.Table:
    try:
        return pa.csv.read_csv(
            file,
            read_options=pa.csv.ReadOptions(column_names=list(columns), use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=pa.csv.ConvertOptions(
                column_types=columns, include_columns=wanted, null_values=[]
            ),
        )
    except FileNotFoundError as error:
        raise DatasetError(f"{file}: there is no such file; unpack the dataset there") from error
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{file}: {error}") from error


def _two_columns(file: Path, name: str) -> tuple[Integers, Floats]:
    """(ids, numbers) of a file of ids and numbers of at least 0."""
    columns = {"URL_ID": pa.int64(), name: pa.float64()}
    table = _table(file, columns, list(columns)) if _filled(file) else None
    if table is None:
        return np.empty(0, np.int64), np.empty(0)
    values = table[name].to_numpy()
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0.0)))
    if bad.size:
        raise DatasetError(f"{file}, line {bad[0] + 1}: {values[bad[0]]:g} is no {name}")
    return table["URL_ID"].to_numpy(), values


def _filled(file: Path) -> bool:
    """Whether there is anything in a file; one that is missing is for its reader to name."""
    return not file.is_file() or file.stat().st_size > 0


def _learned(
    file: Path, known: _Rows, told: Callable[[float], None] | None
) -> Iterator[tuple[Integers, Floats]]:
    """(rows, change rates) of batches of histories."""
    try:
        size = max(file.stat().st_size, 1)
    except OSError as error:
        raise DatasetError(f"{file}: there is no such file; unpack the dataset there") from error
    ids: list[int] = []
    histories: list[Floats] = []
    done = number = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            done += len(line)
            url_id, history = _history(line, f"{file}, line {number}")
            ids.append(url_id)
            histories.append(history)
            if len(ids) == BATCH_PAGES:
                yield known.of(np.array(ids), file, number + 1 - len(ids)), _rates(histories)
                ids.clear()
                histories.clear()
                if told is not None:
                    told(done / size)
    if ids:
        yield known.of(np.array(ids), file, number + 1 - len(ids)), _rates(histories)


def _history(line: bytes, where: str) -> tuple[int, Floats]:
    """(URL_ID, array (crawls, 2) of days and changed) of a line."""
    try:
        url_id, _, crawls = line.split(b"\t", 2)
        pairs = np.array(_HISTORY_LIST.decode(crawls)).reshape(-1, 2)
        number = int(url_id)
    except (ValueError, msgspec.DecodeError) as error:
        raise DatasetError(
            f"{where}: {error}; expected URL_ID, offset and [[days, 0 or 1], ...] between tabs"
        ) from error
    if not (np.isfinite(pairs[:, 0]) & (pairs[:, 0] >= 0) & np.isin(pairs[:, 1], (0, 1))).all():
        raise DatasetError(f"{where}: a crawl is not [days of at least 0, 0 or 1]")
    return number, pairs


def _rates(histories: list[Floats]) -> Floats:
    crawls = np.concatenate(histories)
    offsets = np.cumsum([0, *(len(history) for history in histories)])
    return change_rates_from_crawls(crawls[:, 0], crawls[:, 1] > 0, offsets)


def _hosts(folder: Path, known: _Rows) -> tuple[Integers | None, Mask | None]:
    """(Host_ID, whether that host limits crawls) of each URL, as far as the files are there."""
    if not (folder / URLS).exists():
        return None, None
    columns = {"URL": pa.string(), "URL_ID": pa.int64(), "Host_ID": pa.int64()}
    # Without the URLs themselves, of which nothing is known but that they are long.
    table = _table(folder / URLS, columns, ["URL_ID", "Host_ID"])
    host_id = np.full(known.ids.size, -1)
    host_id[known.of(table["URL_ID"].to_numpy(), folder / URLS)] = table["Host_ID"].to_numpy()
    if not (folder / HOSTS).exists():
        return host_id, None
    columns = {"host": pa.string(), "Host_ID": pa.int64(), "constrained": pa.int64()}
    table = _table(folder / HOSTS, columns, ["Host_ID", "constrained"])
    limited = table.filter(pc.equal(table["constrained"], 1))["Host_ID"].to_numpy()
    return host_id, np.isin(host_id, limited)
