"""Heaps in two arrays, keys and items, the greatest key first."""

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled


@compiled
def push(
    keys: NDArray[np.float64], items: NDArray[np.int32], size: int, key: float, item: int
) -> int:
    """Add to a heap, the greatest key first; the new size."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] >= key:
            break
        keys[place] = keys[parent]
        items[place] = items[parent]
        place = parent
    keys[place] = key
    items[place] = item
    return size + 1


@compiled
def pop(keys: NDArray[np.float64], items: NDArray[np.int32], size: int) -> int:
    """Drop the top of a heap; the new size."""
    size -= 1
    key, item = keys[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    keys[place] = key
    items[place] = item
    return size
