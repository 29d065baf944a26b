"""What is packed, in parts of any size."""

import gzip
import zlib

import pytest

from shared.runtime.unpacking import PART_BYTES, Damaged, Unpacking

TEXT = b"".join(b"%d " % n for n in range(3000))


def unpacked(packed, part):
    unpacking = Unpacking()
    pieces = []
    for begin in range(0, len(packed), part):
        pieces += unpacking.feed(packed[begin : begin + part])
    unpacking.close()
    return pieces


@pytest.mark.parametrize("part", [1, 2, 3, 1000, 1 << 20])
def test_parts_may_be_cut_anywhere(part):
    joined = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(TEXT)
    for packed, text in ((joined, 2 * TEXT), (zlib.compress(TEXT), TEXT), (b"", b"")):
        for after in (b"", b"\x1f", b"\0\0", b"\0and more", b"and more") if packed else (b"",):
            assert b"".join(unpacked(packed + after, part)) == text
    for broken in (joined[:-1], joined + b"\x1f\x8b", zlib.compress(TEXT)[:-1]):
        with pytest.raises(Damaged):
            unpacked(broken, part)


def test_little_comes_out_at_a_time_however_much_it_will_be():
    bomb = gzip.compress(b"x" * 20_000_000)
    assert max(map(len, unpacked(bomb, len(bomb)))) <= PART_BYTES
