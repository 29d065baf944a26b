"""Records that were applied in memory, on their way into the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import ConsumerRecord

from services.estimator.commits import Commit, Offsets
from services.estimator.decoding import Misplaced, Refused
from services.estimator.ordering import ShardRecords, counts_of, ends_of
from services.estimator.processing import Processed
from shared.runtime.isolation import Count
from shared.runtime.tracing import Traced


@dataclass(frozen=True, slots=True)
class Applied:
    """A batch, or a part of one: some shards' records, and what they came to."""

    records: ShardRecords
    touched: set[int]
    """The shards that differ from what the database has until it is stored."""
    made: Processed
    refused: Refused | None
    """The only record, known to be bad: it was not applied."""
    traced: Traced[ConsumerRecord]

    @property
    def letters(self) -> list[Refused]:
        """What is set aside."""
        if self.refused is not None:
            return [self.refused]
        return [letter for part in self.made.done for letter in part.refused]

    @property
    def misplaced(self) -> list[Misplaced]:
        """What is passed on to other shards."""
        return [record for part in self.made.done for record in part.misplaced]

    def commit(
        self, owned: Mapping[int, int], before: Offsets, now: float, *, hurried: bool
    ) -> Commit:
        """What makes it durable.

        Args:
            owned: the touched shards → the epoch in which each is owned.
            before: the positions that this process believes to hold.
            now: clock time, Unix seconds.
            hurried: others wait meanwhile.
        """
        news = self.made.news
        return Commit(
            done=self.made.done,
            owned=owned,
            before=before,
            after=ends_of(self.records),
            announcing={n: part.announcing for n, part in news.items() if part.pages or part.hosts},
            recorded_at=now,
            hurried=hurried,
        )


def counted(parts: Iterable[Applied]) -> dict[str, Count]:
    """Messages of parts, by topic."""
    records: ShardRecords = {}
    letters: list[Refused] = []
    for part in parts:
        records |= part.records
        letters += part.letters
    return counts_of(records, letters)
