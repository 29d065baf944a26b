"""What pages are crawled for, as the settings say it: checked before anything starts."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from shared.contracts.objectives import DEFAULT, Told, objective_code
from shared.runtime.host_patterns import ANY, KNOWN, host_pattern

_MOST: Final = 10_000


def checked_objectives(told: Mapping[str, Told]) -> dict[str, Told]:
    """The objectives as they were given, by domains as hosts are compared.

    Raises:
        ValueError: says what is wrong.
    """
    found: dict[str, Told] = {}
    for name, objective in told.items():
        try:
            objective_code(objective)
            found[name if name == DEFAULT else _domain(name)] = objective
        except ValueError as error:
            raise ValueError(f"{name[:100]}: {error}") from None
    return found


def _domain(name: str) -> str:
    """A domain: its host and all below it, of whatever port."""
    domain = host_pattern(name)
    is_pattern = domain in (KNOWN, ANY) or domain.startswith("*.")
    if is_pattern or (domain.rpartition(":")[0] and not domain.endswith("]")):
        raise ValueError("name a domain, as example.com: it is meant with all hosts below it")
    return domain


ObjectivesByDomain = Annotated[
    dict[str, Told], Field(max_length=_MOST), AfterValidator(checked_objectives)
]
