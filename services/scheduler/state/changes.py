"""What makes the demand of a shard another, counted."""

from dataclasses import dataclass


@dataclass(slots=True)
class Changes:
    """How many there were since the shard is there."""

    told: int = 0
    """Pages that came, went, or are said to be worth something else; limits of hosts."""
    learned: int = 0
    """Pages of which was learned how often they change, and what their signals say."""

    def since(self, before: "Changes") -> "Changes":
        """How many there were after some others."""
        return Changes(self.told - before.told, self.learned - before.learned)
