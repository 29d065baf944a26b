"""The page of the faults that are planted: what they are, and which checks have to find them."""

from collections.abc import Iterable

from deploy.docs.tables import table
from services.verify.mutants.catalogue import MUTANTS
from services.verify.mutants.mutant import HELD_BY, Mutant, Promise

_HEAD = """# Planted faults

`freshet verify --mutants` plants these faults into simulated workers, one at a time, and runs seeds
until a check finds it. Production code knows nothing of them: a method, a function or a constant is
replaced from outside while a simulation runs. The same seeds pass without the fault. One that no
check finds is a check that is missing.

"""


def overview() -> str:
    """Promise, checks, faults: a row each."""
    return table(
        ("promise", "checks of the simulator", "planted faults that they find"),
        (
            (
                promise.value,
                _names(HELD_BY[promise]),
                _names(mutant.name for mutant in _of(promise)),
            )
            for promise in Promise
        ),
    )


def page() -> str:
    """The page, in Markdown."""
    return _HEAD + overview() + "\n\n" + "\n".join(_section(promise) for promise in Promise)


def _section(promise: Promise) -> str:
    rows = ((f"`{mutant.name}`", mutant.what) for mutant in _of(promise))
    held = f"Held by {_names(HELD_BY[promise])}."
    return f"## {promise.value}\n\n{held}\n\n{table(('fault', 'what is wrong'), rows)}"


def _of(promise: Promise) -> list[Mutant]:
    return [mutant for mutant in MUTANTS if mutant.promise is promise]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
