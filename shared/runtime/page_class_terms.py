"""What operators say of classes of pages: how much more these are worth, or a part of the slots.

A weight multiplies the importance of a class's pages wherever that counts. A share is a part of
each shard's slots that is kept for the class (`services.scheduler.picking.class_turns`).
"""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.contracts.fields import MAX_CLASS_LENGTH

MOST_CLASSES_NAMED: Final = 32
"""Each has figures of its own."""

MOST_CLASSES_WITH_SHARES: Final = 7
"""Each makes filling a slot a little slower."""

MOST_SHARED: Final = 0.95
"""Of the slots is kept for classes: no page may wait for ever for one of the others."""

_ROUNDING: Final = 1e-9

ClassName = Annotated[
    str, Field(min_length=1, max_length=MAX_CLASS_LENGTH, pattern=r"^[a-z0-9._-]+$")
]


class ClassTerms(BaseModel):
    """Of one class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: Annotated[float, Field(ge=0.001, le=1000.0)] = 1.0
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0


def _checked(classes: Mapping[str, ClassTerms]) -> dict[str, ClassTerms]:
    """The classes as they were given.

    Raises:
        ValueError: says what is wrong.
    """
    shares = [terms.share for terms in classes.values() if terms.share > 0.0]
    if sum(shares) > MOST_SHARED + _ROUNDING:
        raise ValueError(
            f"the shares add up to {sum(shares):g}, and must leave {1.0 - MOST_SHARED:g} to all"
        )
    if len(shares) > MOST_CLASSES_WITH_SHARES:
        raise ValueError(
            f"{len(shares)} classes have shares, and {MOST_CLASSES_WITH_SHARES} may: give others "
            "a weight"
        )
    return dict(classes)


PageClassTerms = Annotated[
    dict[ClassName, ClassTerms],
    Field(max_length=MOST_CLASSES_NAMED),
    AfterValidator(_checked),
]


def weights_of(classes: Mapping[str, ClassTerms]) -> dict[str, float]:
    """By what the importance of pages is multiplied, by class."""
    return {name: terms.weight for name, terms in classes.items()}


def weight_of(classes: Mapping[str, ClassTerms], name: str | None) -> float:
    """By what the importance of a class's pages is multiplied; `name` None: of pages of none."""
    terms = classes.get(name) if name is not None else None
    return terms.weight if terms is not None else 1.0
