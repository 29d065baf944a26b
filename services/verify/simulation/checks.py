"""The promises, checked on what a simulation left behind."""

from services.verify.checks.finding import Finding
from services.verify.simulation.facts import Facts


def check(facts: Facts) -> list[Finding]:
    """All checks."""
    return [Finding.of("ready", "all workers are ready at the end",
                       [f"{k}: {v}" for k, v in sorted(facts.not_ready.items())])]
