"""The number of a page's directory: of each URL alone, and of many at once."""

import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verify.reference import state
from shared.contracts.identity import BadUrl, identify
from shared.store.directories import directories_of, directory_of


def together(urls):
    data = [url.encode() for url in urls]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return np.frombuffer(b"".join(data), np.uint8), ends


def test_a_directory_is_the_path_up_to_its_last_slash():
    def number(path):
        return zlib.crc32(path.encode()) & 0xFFFF

    assert directory_of("https://h.example/") == number("/")
    assert directory_of("https://h.example/a") == number("/")
    assert directory_of("https://h.example/a/") == number("/a/")
    assert directory_of("https://h.example:8080/a/b/c.html?d=/e/f") == number("/a/b/")
    assert directory_of("https://h.example/a?x=https://other/b") == number("/")
    assert directory_of("") == 0


PATHS = st.text(st.sampled_from("ab/é?.:#"), max_size=20)


@settings(deadline=None)  # the first one compiles
@given(st.lists(PATHS, min_size=1, max_size=8))
def test_many_at_once_and_the_reference_say_the_same(paths):
    urls = []
    for path in paths:
        try:
            urls.append(identify(f"https://host.example/{path}").url)
        except BadUrl:
            continue
    each = [directory_of(url) for url in urls]
    assert directories_of(*together(urls)).tolist() == each
    assert [state.directory_of(url) for url in urls] == each
