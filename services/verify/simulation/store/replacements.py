"""Which functions of the workers the model stands in for."""

from collections.abc import Callable, Iterable
from typing import Any

from services.verify.simulation.store.database import Database
from services.verify.simulation.store.erasing import ErasureStatements
from services.verify.simulation.store.growth import GrowthStatements, patient
from services.verify.simulation.store.imports import ImportStatements
from services.verify.simulation.store.learned import LearnedStatements
from services.verify.simulation.store.lease import LeaseStatements
from services.verify.simulation.store.owners import OwnerStatements
from services.verify.simulation.store.statements import Statements
from services.verify.simulation.store.unanswered import UnansweredStatements


def nothing(*_: Any, **__: Any) -> int:
    """In the place of what a simulation needs not."""
    return 0


def replacements(database: Database) -> dict[str, Callable[..., Any]]:
    """Module and function → what stands in its place."""
    statements, lease = Statements(database), LeaseStatements(database)
    owners, imports = OwnerStatements(database), ImportStatements(database)
    learned = LearnedStatements(database)
    erasures, unanswered = ErasureStatements(database), UnansweredStatements(database)
    found: dict[str, Callable[..., Any]] = {
        "shared.store.connection.connect": statements.connect,
        "shared.store.connection.connect_writer": statements.connect,
        "shared.store.connection.server_of": nothing,
        "shared.store.deployment.check_deployment": nothing,
        "shared.store.deployment.require_held": nothing,
        "shared.store.deployment.require_schema": nothing,
        "shared.store.deployment.require_this_schema": nothing,
        "shared.store.erasing.drop_old_erasures": nothing,
        "shared.store.retention.drop_old_observations": nothing,
        "shared.store.retention.make_room": nothing,
        "shared.store.multipliers.append_multipliers": nothing,
        "shared.store.multipliers.prune_multipliers": nothing,
        "shared.store.read_ahead.allow_reading_ahead": nothing,
        "shared.store.read_ahead.read_ahead": nothing,
        "shared.store.writer.ensure_observation_partition": nothing,
    }
    groups: Iterable[tuple[str, object, str]] = (
        ("shared.store.layout", statements, "read_layout"),
        ("shared.store.positions", statements, "advance_positions raise_positions read_positions"),
        (
            "shared.store.writer",
            statements,
            "update_pages insert_pages write_hosts update_hosts update_factors append_observations",
        ),
        ("shared.store.page_classes", statements, "write_classes"),
        ("shared.store.snapshot", statements, "load_shard load_for_learning"),
        (
            "shared.store.owners",
            owners,
            "raise_epochs require_ownership read_epochs note_announcing",
        ),
        ("shared.store.learned_pages", learned, "read_pages pages_of_host crawled_pages"),
        ("shared.store.writer_lock", imports, "share_writer_lock"),
        ("shared.store.imports_log", imports, "read_imports read_imported_pages read_learned"),
        ("shared.store.erasing", erasures, "erase_pages erase_hosts"),
        ("shared.store.unanswered", unanswered, "write_unanswered"),
        ("shared.store.stream_topics", owners, "note_topics read_topics"),
        (
            "shared.store.lease",
            lease,
            "connect_lease read_lease take_lease renew_lease release_lease",
        ),
    )
    for module, owner, names in groups:
        found |= {f"{module}.{name}": getattr(owner, name) for name in names.split()}
    return found | _of_growth(database, found)


def _of_growth(
    database: Database, others: dict[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """What only a growth needs, and what it shares with the workers: its command waits there."""
    growth = GrowthStatements(database)
    own: dict[str, Callable[..., Any]] = {
        "shared.store.partitions.lock_schema": growth.lock_schema,
        "shared.store.partitions.without_partitions": lambda _connection, shards: list(shards),
        "shared.store.writer_lock.keep_imports_out": growth.keep_imports_out,
        "shared.store.copies.make_copies": growth.make_copies,
        "shared.store.first_touches.touch_blocks": growth.touch_blocks,
        "shared.store.left_urls.delete_left_urls": growth.delete_left_urls,
        "shared.store.moving.note_moves": nothing,
        "shared.store.moving.move_rows": growth.move_rows,
        "shared.store.moving.move_observations": growth.move_observations,
        "shared.store.moving.tidy": growth.tidy,
        "shared.store.owners.pass_on_announcing": growth.pass_on_announcing,
        "shared.store.growth._note_growth": growth.note_growth,
        "shared.store.growth._require_held": growth.require_held,
        "shared.store.growth._note_split": growth.note_split,
        "shared.store.splits.read_splits": growth.read_splits,
        "shared.store.splits.without_scheduler": growth.without_scheduler,
        "shared.store.splits.ask": growth.ask,
        "shared.store.splits.hold": growth.hold,
        "shared.store.splits.resume": growth.resume,
        "shared.store.splits.take_over": growth.take_over,
    }
    shared = (
        "shared.store.connection.connect",
        "shared.store.layout.read_layout",
        "shared.store.owners.raise_epochs",
    )
    return {
        name: patient(function)
        for name, function in (own | {name: others[name] for name in shared}).items()
    }
