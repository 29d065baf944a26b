"""A replay as the command line asks for it: policies compared on one trace, as a report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from services.replay.policies import Replayed, check_policy, is_online, replay_policy
from services.replay.slots import Budget
from services.replay.trace import Trace
from services.replay.version import code_version

Told = Callable[[str, float], None]
"""Called with the policy at work and the share of its replay that is done."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several policies on one trace."""

    trace: Trace
    budget: Budget
    seed: int
    oracle: bool
    policies: dict[str, Replayed]

    def report(self) -> dict[str, Any]:
        """The comparison for JSON."""
        return {
            "policies": {
                name: replayed.books.report()
                | {
                    "parameters": replayed.parameters,
                    "online": is_online(name) and not self.oracle,
                }
                for name, replayed in self.policies.items()
            },
            "code_version": code_version(),
            "seed": self.seed,
            "oracle": self.oracle,
            "trace": self.trace.digest(),
            "days": self.trace.days,
            "pages": len(self.trace),
            "changes": int(self.trace.change_days.size),
            "signals": int(self.trace.signal_days.size),
            "requests": int(self.trace.request_days.size),
            "crawls_per_day": [list(step) for step in self.budget.steps],
        }

    def rows(self) -> list[dict[str, Any]]:
        """A line a policy, the freshest first."""
        rows = [
            {
                "policy": name,
                "staleness": replayed.books.staleness,
                "mean_age_days": replayed.books.mean_age_days,
                "harmonic_cost": replayed.books.harmonic_cost,
                "binary_cost": replayed.books.binary_cost,
                "crawls": int(replayed.books.crawls.sum()),
                "unchanged_share": replayed.books.report(False)["unchanged_share"],
                "worst_age_days": float(replayed.books.oldest_days.max()),
                "never_crawled": int((replayed.books.crawls == 0).sum()),
            }
            for name, replayed in self.policies.items()
        ]
        if self.trace.request_days.size:
            for row in rows:
                books = self.policies[str(row["policy"])].books
                row["fresh_request_share"] = books.fresh_request_share
        return sorted(rows, key=lambda row: float(str(row["staleness"])))


def compare(
    trace: Trace,
    budget: Budget,
    names: Sequence[str],
    *,
    seed: int = 0,
    oracle: bool = False,
    told: Told | None = None,
) -> Comparison:
    """Replay each policy of `names` on `trace`.

    Raises:
        UnknownPolicy: a name is no policy's.
        ValueError: a policy cannot be solved for this trace.
    """
    for name in names:  # not after minutes of the others' work
        check_policy(trace, budget, name)
    done = {}
    for name in names:

        def progress(day: float, name: str = name) -> None:
            if told is not None:
                told(name, day / trace.days)

        done[name] = replay_policy(trace, budget, name, seed=seed, oracle=oracle, progress=progress)
    return Comparison(trace, budget, seed, oracle, done)
