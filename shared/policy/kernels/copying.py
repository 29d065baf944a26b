"""Values from one column into another.

Where a part of an array is assigned to a part of another one, numba brings along what it would say
of unequal lengths: some five thousand of LLVM's instructions that put text together, in each
kernel.
"""

from typing import Any

from numpy.typing import NDArray

from shared.policy.compiled import compiled


@compiled
def copy_values(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Put the values of a column into the first places of one that is not shorter."""
    for place in range(source.size):
        target[place] = source[place]
