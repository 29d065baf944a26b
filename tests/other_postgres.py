"""Another PostgreSQL than the project's own, for the tests that share a server."""

import os
from pathlib import Path
from typing import Final

PROGRAMS: Final = "TEST_POSTGRES_PROGRAMS"
"""Environment: the folder of its programs."""


def other_programs() -> Path | None:
    """Where its programs are; None: nobody asks for another."""
    found = os.environ.get(PROGRAMS)
    return Path(found) if found else None
