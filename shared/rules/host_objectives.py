"""What the pages of each host are crawled for: by the nearest domain that operators name.

Nothing is kept of it but the settings, so every process that has the same ones says the same of a
host that it never heard of.
"""

from collections.abc import Mapping
from typing import Final

from shared.contracts.objectives import DEFAULT, FRESHNESS, Told, objective_code
from shared.rules.host_groups import group_of


class HostObjectives:
    """By host. True where any are crawled for something else than freshness."""

    def __init__(self, told: Mapping[str, Told]) -> None:
        """Take what is told of domains, and by `DEFAULT` of all others.

        Raises:
            ValueError: one is no objective.
        """
        codes = {name: objective_code(objective) for name, objective in told.items()}
        self._default = codes.pop(DEFAULT, FRESHNESS)
        self._by_domain = codes

    def __bool__(self) -> bool:
        return self._default != FRESHNESS or any(self._by_domain.values())

    def of(self, host: str) -> int:
        """The code of what a host's pages are crawled for (`shared.contracts.objectives`)."""
        domain = group_of(host, self._by_domain) if self._by_domain else None
        return self._default if domain is None else self._by_domain[domain]


FRESHNESS_ALONE: Final = HostObjectives({})
