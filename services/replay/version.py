"""Which code made a result."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from shared.policy.sources import fingerprint_of

_ROOTS: Final = ("replay.py", "as_they_come.py", "polled.py", "experiments/catalogue.py")
"""From these everything is reached that a result depends on: the scheduler's code and the
estimator's, too."""


@cache
def code_version() -> str:
    """The package's version, and a digest of the sources that results of the lab depend on."""
    digest = hashlib.sha256()
    for name in _ROOTS:
        digest.update(fingerprint_of(Path(__file__).parent / name).encode())
    try:
        version = metadata.version("freshet")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return f"{version}+{digest.hexdigest()[:12]}"
