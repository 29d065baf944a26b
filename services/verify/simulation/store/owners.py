"""The functions of `shared.store.owners` and `shared.store.stream_topics`, on the model."""

from collections.abc import Collection, Mapping

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database
from shared.store.owners import NO_OWNER, Announcing
from shared.store.positions import Superseded


class OwnerStatements:
    """Those who write shards, and the topics that positions are about."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def raise_epochs(
        self, connection: Connection, shards: Collection[int], holder: str
    ) -> dict[int, int]:
        """As `shared.store.owners.raise_epochs`."""
        mine, table = connection.mine, self._database.owners
        self._database.lock(mine, [("owner", shard) for shard in sorted(shards)])
        least = int(1000 * (BEGINNING + self._database.loop.now))
        raised = {shard: max(self.epoch_of(shard) + 1, least) for shard in shards}

        def write() -> None:
            for shard, epoch in raised.items():
                row = table.setdefault(shard, {"announcing": Announcing.nothing()})
                row |= {"epoch": epoch, "holder": holder, "process": mine.process}

        mine.writes.append(write)
        return raised

    def require_ownership(
        self, connection: Connection, owned: Mapping[int, int], holder: str
    ) -> None:
        """As `shared.store.owners.require_ownership`."""
        self._database.lock(connection.mine, [("owner", shard) for shard in sorted(owned)])
        found = self.read_epochs(connection, owned)
        lost = [shard for shard in sorted(owned) if found.get(shard) != (owned[shard], holder)]
        if lost:
            raise Superseded(f"{len(lost)} of {len(owned)} shards have another owner", lost)

    def read_epochs(
        self,
        connection: Connection,  # noqa: ARG002
        shards: Collection[int],
    ) -> dict[int, tuple[int, str]]:
        """As `shared.store.owners.read_epochs`."""
        table = self._database.owners
        return {
            shard: (table[shard]["epoch"], table[shard]["holder"])
            for shard in sorted(shards)
            if shard in table
        }

    def note_announcing(self, connection: Connection, announcing: Mapping[int, Announcing]) -> None:
        """As `shared.store.owners.note_announcing`."""
        mine, table = connection.mine, self._database.owners
        self._database.lock(mine, [("owner", shard) for shard in sorted(announcing)])
        noted = dict(announcing)

        def write() -> None:
            for shard, about in noted.items():
                table[shard]["announcing"] = about

        mine.writes.append(write)

    def epoch_of(self, shard: int) -> int:
        """Of the present owner."""
        row = self._database.owners.get(shard)
        return NO_OWNER if row is None else int(row["epoch"])

    def announcing_of(self, shard: int) -> Announcing:
        """What the last commit was about to announce."""
        row = self._database.owners.get(shard)
        return Announcing.nothing() if row is None else row["announcing"]

    def note_topics(self, connection: Connection, ids: Mapping[str, str]) -> None:
        """As `shared.store.stream_topics.note_topics`."""
        mine, table = connection.mine, self._database.topics
        self._database.lock(mine, [("topic", topic) for topic in sorted(ids)])
        mine.topics = {topic: name for topic, name in ids.items() if topic not in table}
        mine.writes.append(lambda: table.update(mine.topics))

    def read_topics(self, connection: Connection) -> dict[str, str]:
        """As `shared.store.stream_topics.read_topics`."""
        return self._database.topics | connection.mine.topics
