"""What a shard asks for by class of pages, for operators to see."""

from services.scheduler.state.page_classes import OTHERS
from services.scheduler.state.shard import Shard
from shared.contracts.reported import ClassCrawls


def class_crawls(shard: Shard, seconds: float) -> list[ClassCrawls]:
    """Requests since the last call, of each class of which operators say something, and of all
    other pages together; nothing where they say nothing.

    Args:
        shard: whose notes are taken.
        seconds: since the last call.
    """
    crawls = shard.notes.take_class_notes()
    terms = {rule.name: rule for rule in shard.rules.classes}
    found = []
    for name, numbers in shard.classes.named().items():
        rule, count = terms.get(name), sum(int(crawls[number]) for number in numbers)
        found.append(
            ClassCrawls(
                name,
                sum(int(shard.classes.pages[number]) for number in numbers),
                count / seconds if seconds > 0 else 0.0,
                rule.share if rule else 0.0,
                rule.weight if rule else 1.0,
            )
        )
    return found


def label_of(name: str) -> str:
    """A class as metrics and people call it."""
    return "(others)" if name == OTHERS else name
