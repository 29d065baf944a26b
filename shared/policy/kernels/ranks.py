"""Which value so many reach: selection without sorting.

Numba's `np.partition` brings its own sort, lists and unique numbers with it into each kernel that
calls it at any depth, an eighth of all machine code there would be.
"""

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled


@compiled
def nth_greatest(values: NDArray[np.float64], wanted: int) -> float:
    """The `wanted`-th greatest of some, from 1 on, which are put in another order.

    C. A. R. Hoare, "Algorithm 65: Find", 1961, with the middle one of three to compare with. None
    may be NaN.
    """
    low, high, place = 0, values.size - 1, wanted - 1
    while low < high:
        first, middle, last = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return float(values[place])
