"""All mutants there are; a new module of them is named here."""

from typing import Final

from services.verify.mutants import (  # noqa: F401 - they fill it
    growing,
    learning,
    pacing,
    picking,
    reading,
    residence,
)
from services.verify.mutants.mutant import Mutant, catalogue

MUTANTS: Final[tuple[Mutant, ...]] = catalogue()
"""By promise and name."""
