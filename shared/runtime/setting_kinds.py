"""What settings may be, where several are of a kind, or one takes many lines."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, AliasChoices, Field

from shared.runtime.host_patterns import host_pattern
from shared.runtime.page_class_terms import ClassName

ENV_PREFIX: Final = "FRESHET_"
"""Of the variables of the environment that are settings."""


def unprefixed(name: str) -> Any:
    """A setting that is known by a name without the prefix, too."""
    return Field(validation_alias=AliasChoices(name, f"{ENV_PREFIX}{name}", name.lower()))


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]

UrlPattern = Annotated[str, Field(min_length=1, max_length=1000)]
UrlPatterns = Annotated[tuple[UrlPattern, ...], Field(max_length=1000)]

HostPatternNames = Annotated[
    tuple[Annotated[str, AfterValidator(host_pattern)], ...],
    Field(min_length=1, max_length=10_000),
]

ImportanceByUrl = Annotated[
    dict[UrlPattern, Annotated[float, Field(ge=0.0, le=1e12)]], Field(max_length=1000)
]
ClassByUrl = Annotated[dict[UrlPattern, ClassName], Field(max_length=1000)]
