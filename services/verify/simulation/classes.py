"""Classes of pages in a simulation: what operators say of each page's, and change soon after."""

from random import Random
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from services.verify.simulation.plan import Scale
from shared.contracts.messages import PageUpdate

CHANGED_SECONDS: Final = 1.5
"""A page gets another class so soon, before any is removed."""

_UNNAMED: Final = "spare"
"""A class of which operators say nothing."""


def with_class(update: PageUpdate, scale: Scale) -> PageUpdate:
    """An update that says of which class its page is, where pages have classes."""
    return replace(update, page_class=_drawn(update, scale)) if scale.classes else update


def with_classes(update: PageUpdate, scale: Scale) -> list[PageUpdate]:
    """The same, and another one somewhat later that changes it."""
    if not scale.classes:
        return [update]
    later = (update.updated_at or 0.0) + CHANGED_SECONDS
    change = with_class(PageUpdate("upsert", update.url, updated_at=later), scale)
    return [with_class(update, scale), change]


def _drawn(update: PageUpdate, scale: Scale) -> str | UnsetType | None:
    rng = Random(f"{update.url} {update.updated_at}")  # noqa: S311 - a simulation
    names = [name for name, _, _ in scale.classes]
    return rng.choice([*names, *names, _UNNAMED, None, UNSET])
