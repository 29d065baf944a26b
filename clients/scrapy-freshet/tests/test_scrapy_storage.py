"""A page that cannot be stored fails alone: the copies before and after it can be read."""

import errno
import os
import random
import resource
from contextlib import contextmanager
from io import FileIO

import pytest
from scrapy.http import Response
from scrapy_freshet.storage import Warc
from warcio.archiveiterator import ArchiveIterator


@contextmanager
def room(folder, more):
    """No file of ours may grow by more than so many bytes in the block."""
    largest = max((file.stat().st_size for file in folder.glob("*")), default=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def page(number, size=1000):
    """One whose content cannot be packed."""
    body = random.Random(number).randbytes(size)
    return Response(f"http://a.example/{number}", status=200, body=body)


def fails(store, response):
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        store.put(response.url, response)


def copies(folder):
    """URL → content, of all copies in complete files; each file begins by saying whose it is."""
    found = {}
    for file in sorted(folder.glob("*.warc.gz")):
        with file.open("rb") as stream:
            records = ArchiveIterator(stream)
            assert next(records).rec_type == "warcinfo"
            for record in records:
                url = record.rec_headers.get_header("WARC-Target-URI")
                assert url not in found
                found[url] = record.content_stream().read()
    return found


@pytest.mark.parametrize("most_bytes", [1 << 30, 3000])
def test_a_disk_that_is_full_for_a_moment_costs_only_the_pages_of_that_moment(tmp_path, most_bytes):
    store = Warc(tmp_path, most_bytes)
    before, large, after = page(1), page(2, 500_000), [page(number) for number in (3, 4, 5)]
    store.put(before.url, before)
    with room(tmp_path, 100_000):
        fails(store, large)
        fails(store, large)
    for one in after:
        store.put(one.url, one)
    store.close()
    assert copies(tmp_path) == {one.url: one.body for one in (before, *after)}
    assert list(tmp_path.glob("*.open")) == []


@pytest.mark.parametrize("more", [0, 100, 800])
def test_a_disk_that_is_full_at_the_start_leaves_no_file_that_cannot_be_read(tmp_path, more):
    store, first = Warc(tmp_path), page(1)
    with room(tmp_path, more):
        fails(store, first)
    store.put(first.url, first)
    store.close()
    assert copies(tmp_path) == {first.url: first.body}


def test_a_disk_that_stays_full_leaves_nothing(tmp_path):
    store, first = Warc(tmp_path), page(1)
    with room(tmp_path, 0):
        fails(store, first)
        store.close()
    assert list(tmp_path.glob("*")) == []


class Uncut(FileIO):
    """A file of which nothing can be taken back."""

    def truncate(self, _size=None):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_behind_what_cannot_be_taken_back_nothing_is_written(tmp_path, monkeypatch):
    def begin(store):
        begun(store).close()
        return Uncut(store._path, "w")

    begun = Warc._begin
    monkeypatch.setattr(Warc, "_begin", begin)
    store, large, after = Warc(tmp_path), page(1, 500_000), page(2)
    with room(tmp_path, 100_000):
        fails(store, large)
    store.put(after.url, after)
    store.close()
    assert copies(tmp_path) == {after.url: after.body}
    assert len(list(tmp_path.glob("*.open"))) == 1, "it is not said to be complete"
