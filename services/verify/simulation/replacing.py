"""Models in the place of the real thing, for as long as a simulation runs."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

_OURS: Final = ("services.", "shared.")

Place = tuple[Any, str]
"""Module and name."""


@contextmanager
def replaced(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Put functions in the place of others wherever our modules have them, under whatever name.

    Args:
        functions: full name of the original, like `shared.store.snapshot.load_shard` → substitute.
    """
    changed: list[tuple[Any, str, Any]] = []
    try:
        for name, places in _places(tuple(functions)).items():
            for module, attribute in places:
                changed.append((module, attribute, getattr(module, attribute)))
                setattr(module, attribute, functions[name])
        yield
    finally:
        for module, attribute, before in reversed(changed):
            setattr(module, attribute, before)


_FOUND: dict[tuple[str, ...], dict[str, list[Place]]] = {}


def _places(names: tuple[str, ...]) -> dict[str, list[Place]]:
    """Where our modules have functions; looked for once."""
    if names not in _FOUND:
        originals = {}
        for name in names:
            home, attribute = name.rsplit(".", 1)
            originals[id(getattr(importlib.import_module(home), attribute))] = name
        found: dict[str, list[Place]] = {name: [] for name in names}
        for module_name, module in sorted(sys.modules.items()):
            if not module_name.startswith(_OURS) or ".simulation" in module_name:
                continue
            for attribute, value in list(vars(module).items()):
                if id(value) in originals:
                    found[originals[id(value)]].append((module, attribute))
        _FOUND[names] = found
    return _FOUND[names]


@contextmanager
def in_turn(calls: Sequence[Callable[[], Any]], _at_once: int = 1) -> Iterator[Iterator[Any]]:
    """In the place of `shared.runtime.ahead.ahead`: the simulation has one thread."""
    yield (call() for call in calls)


@contextmanager
def instead(owner: Any, name: str, substitute: Any) -> Iterator[None]:
    """Have something else in the place of a method, function or constant.

    Args:
        owner: class or module.
        name: of its attribute.
        substitute: the other thing.
    """
    # As it is written there: a property, or a method of the class, is to come back as one.
    before = vars(owner)[name]
    setattr(owner, name, substitute)
    try:
        yield
    finally:
        setattr(owner, name, before)
