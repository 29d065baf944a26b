"""Which directory a page lies in: a number that says so in two bytes.

The directory of a URL is its path up to and with the last "/". Pages keep the last 16 bits of its
CRC-32, so that nobody has to keep a table of names, and whoever invents directories makes nothing
grow. Of a thousand directories of a host some eight share their number with another one, and are
one to us.
"""

import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

DIRECTORIES: Final = 1 << 16
"""Numbers that there are."""

_MASK: Final = DIRECTORIES - 1
_SLASH: Final = ord("/")
_QUERY: Final = ord("?")
_POLYNOMIAL: Final = 0xEDB88320


def directory_of(url: str) -> int:
    """The number of a canonical URL's directory."""
    path = url.partition("?")[0]
    begin = path.find("/", path.find("//") + 2)
    if begin < 0:
        return 0
    return zlib.crc32(path[begin : path.rfind("/") + 1].encode()) & _MASK


def directories_of(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint16]:
    """`directory_of` of many URLs in UTF-8: `data[offsets[i]:offsets[i + 1]]`."""
    directories = np.empty(offsets.size - 1, np.uint16)
    _find(data, offsets, _TABLE, directories)
    return directories


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE: Final = _crc_table()


@compiled
def _find(
    arena: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    directories: NDArray[np.uint16],
) -> None:
    for page in range(directories.size):
        slashes, crc = 0, np.uint32(0xFFFFFFFF)
        directories[page] = 0
        for place in range(offsets[page], offsets[page + 1]):
            byte = arena[place]
            if byte == _QUERY:
                break
            slashes += byte == _SLASH
            if slashes >= 3:  # after those of "https://" comes that of the path
                crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
                if byte == _SLASH:
                    directories[page] = (crc ^ np.uint32(0xFFFFFFFF)) & np.uint32(_MASK)
