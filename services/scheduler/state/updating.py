"""What an update does to a page that is there."""

from typing import Any

from services.scheduler.state import events
from services.scheduler.state.attempts import ask_at_once, last_attempt_of
from services.scheduler.state.page_classes import ShardClasses
from services.scheduler.state.rows import UNSET, Rows
from services.scheduler.state.rules import ShardRules
from shared.contracts.messages import PageUpdate
from shared.rules.page_events import brings_back
from shared.store.class_numbers import AS_IT_IS
from shared.units import SECONDS_PER_DAY


def apply_update(
    page: Any,
    record: Any,
    attempts: Rows,
    classes: ShardClasses,
    rules: ShardRules,
    update: PageUpdate,
    number: int,
    updated_at: float,
) -> None:
    """Change a page.

    Args:
        page: its row.
        record: of the same page.
        attempts: with room for one more.
        classes: of the shard.
        rules: of the shard.
        update: an upsert that is not older than what was applied.
        number: of the class that it names; `AS_IT_IS`: it names none.
        updated_at: its time, Unix seconds.
    """
    first = rules.failed_retry
    if brings_back(page["status"], updated_at, last_attempt_of(attempts, page)):
        events.bring_back(attempts, page, first)
    if update.importance is not None or number != AS_IT_IS:
        classes.change(page, record, update.importance, number)
    if (days := rules.max_age_days_of(update)) is not None:
        page["max_age"] = days * SECONDS_PER_DAY
    if update.urgent:
        ask_at_once(attempts, page, updated_at)
    page["due_staleness"] = UNSET
