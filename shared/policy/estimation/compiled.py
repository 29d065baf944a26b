"""The one way in which this package compiles its loops."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile `function` to machine code that runs without the interpreter's lock.

    The code is cached beside the source, floating-point follows IEEE (a division by zero is an
    infinity, not an exception), and nothing is reordered, so results are the same on every run.
    Compiled functions may call one another; from Python they are ordinary functions.
    """
    return cast(
        Callable[_P, _R],
        numba.njit(nogil=True, cache=True, error_model="numpy")(function),
    )
