"""Which code made a result."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def code_version() -> str:
    """The package's version and a digest of the sources that a replay's result depends on."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for folder in ("shared/policy", "services/replay"):
        for source in sorted((root / folder).rglob("*.py")):
            digest.update(source.relative_to(root).as_posix().encode())
            digest.update(source.read_bytes())
    try:
        version = metadata.version("freshet")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return f"{version}+{digest.hexdigest()[:12]}"
