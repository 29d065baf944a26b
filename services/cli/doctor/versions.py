"""What runs here."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from shared.runtime.findings import Finding

_PACKAGES = ("freshet", "aiokafka", "faust-streaming", "psycopg", "numpy", "numba")


def look_at_versions() -> Iterator[Finding]:
    """Python and the packages that matter most when something is odd."""
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()}")
    for package in _PACKAGES:
        try:
            yield Finding("ok", package, version(package))
        except PackageNotFoundError:
            yield Finding(
                "note",
                package,
                "not installed as a package",
                "an installed package",
                "a fault can be told to belong to a version",
                "pip install, by requirements.lock",
            )
