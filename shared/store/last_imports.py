"""The last import of a shard that somebody knows (`shared.store.imports_log`)."""

import math
from typing import Final, NamedTuple


class LastImport(NamedTuple):
    """It, told from every other one."""

    number: int
    """Of a shard's imports, from 1 on; a server that has lost it gives it to another one."""
    imported_at: float
    """Clock time, Unix seconds; it is only compared with itself."""


NO_IMPORT: Final = LastImport(0, -math.inf)
"""Before the first import of a shard."""
