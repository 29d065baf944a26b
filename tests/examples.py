"""How much is tried where anything at all is tried: a third of it each time, and all of it with
`make long`, which CI runs.

So it is with seeds that tests repeat themselves with, where they are `some`.

A pytest plugin, which `conftest.py` loads. A test says by `max_examples` how many examples `make
long` tries, hypothesis' own hundred where it says nothing. Each run draws others, so those of a few
runs are as many.
"""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test, settings

ALL: Final = "--all-examples"
"""The option of `make long`."""

PART: Final = 3
"""One in so many is tried without the option."""

FEWEST: Final = 25
"""Or so many, where a test says no fewer itself."""

_SETTINGS: Final = "_hypothesis_internal_use_settings"
"""Where hypothesis has a test's settings: it has no way to change them from outside."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make long`."""
    parser.addoption(ALL, action="store_true", help="try all examples that tests ask for")


def some(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters of a test that repeats itself, as with other seeds: the first of them each time,
    all with `make long`."""
    all_ = [value if isinstance(value, tuple) else (value,) for value in values]
    others = [pytest.param(*value, marks=pytest.mark.long) for value in all_[count:]]
    return [*(pytest.param(*value) for value in all_[:count]), *others]


def fewer(examples: int) -> int:
    """How many of so many examples are tried each time."""
    return min(examples, max(examples // PART, FEWEST))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests with examples, and let all but long ones try fewer."""
    seen = set()
    for item in items:
        test = getattr(item, "obj", None)
        if not is_hypothesis_test(test):
            continue
        item.add_marker("examples")
        test = getattr(test, "__func__", test)
        if config.getoption(ALL) or test in seen or item.get_closest_marker("long") is not None:
            continue
        seen.add(test)
        asked = getattr(test, _SETTINGS)
        setattr(test, _SETTINGS, settings(asked, max_examples=fewer(asked.max_examples)))
