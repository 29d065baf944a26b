"""The tables, as SQLAlchemy sees them; `migrations/` makes them.

Times are Unix seconds as float8, −infinity for never; rates are per day. The columns of `pages`
are never NULL, and none that changes has an index, so every update stays on its heap page (HOT).
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """All tables of Freshet."""


class Deployment(Base):
    """One row: how many shards there are (`shared.store.layout`)."""

    __tablename__ = "deployment"
    __table_args__ = (CheckConstraint("id = 1", name="deployment_has_one_row"),)

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    shards: Mapped[int] = mapped_column(Integer)
    grown_from: Mapped[int] = mapped_column(Integer)
    """How many there were before the last growth; as many as now if there was none."""
    earlier_shards: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default="{}")
    """How many there were before the growths before that, the oldest first."""
    shards_held: Mapped[str | None] = mapped_column(Text)
    """Those that this database has (`shared.contracts.databases`); NULL: all."""


class ShardSplit(Base):
    """How far a shard is split in the last growth (`shared.store.splits`)."""

    __tablename__ = "shard_splits"

    parent: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    state: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    until: Mapped[float] = mapped_column(Double, server_default="-infinity")
    """When who asked for it is taken for gone, by the server's own clock."""
    split_at: Mapped[float | None] = mapped_column(Double)
    urls_deleted_at: Mapped[float | None] = mapped_column(Double)
    """When nothing was left any more of the URLs of pages that moved (`shared.store.left_urls`)."""
    observations_moved_at: Mapped[float | None] = mapped_column(Double)
    """When what crawls had found of them had followed (`shared.store.moving`)."""


class ShardClaim(Base):
    """Which scheduler has loaded a shard last (`shared.store.splits`)."""

    __tablename__ = "shard_claims"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    claim: Mapped[str] = mapped_column(Text)
    """Its fencing token: no other loading has it."""
    since: Mapped[float] = mapped_column(Double)
    """By the server's own clock."""


class Page(Base):
    """The state of a page; one partition a shard."""

    __tablename__ = "pages"
    __table_args__ = ({"postgresql_partition_by": "LIST (shard)"},)

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    page_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    host_id: Mapped[int] = mapped_column(BigInteger)
    importance: Mapped[float] = mapped_column(Double)
    max_age_days: Mapped[float] = mapped_column(Double)
    """Infinity: no bound of its own."""
    unsignalled_change_rate: Mapped[float] = mapped_column(Double)
    """α, per day; NaN: no crawl record yet, the host's prior A/B holds."""
    signal_evidence: Mapped[float] = mapped_column(Double)
    """κ̄ of a signal of whatever source; NaN: the host's holds."""
    signal_rate: Mapped[float] = mapped_column(Double)
    """γ, per day."""
    first_seen_at: Mapped[float] = mapped_column(Double)
    last_crawled_at: Mapped[float] = mapped_column(Double)
    last_attempt_at: Mapped[float] = mapped_column(Double)
    """The last crawl of any outcome, failed ones too."""
    last_changed_at: Mapped[float] = mapped_column(Double)
    last_signal_at: Mapped[float] = mapped_column(Double)
    updated_at: Mapped[float] = mapped_column(Double)
    """Time of the last `page-updates` message that was applied."""
    urgent_at: Mapped[float] = mapped_column(Double, server_default="-infinity")
    """Time of the last one that asked for the page at once."""
    digest: Mapped[int] = mapped_column(BigInteger)
    """Hash of the content digest; 0: none."""
    signal_count: Mapped[int] = mapped_column(BigInteger)
    """All signals ever."""
    signals: Mapped[int] = mapped_column(Integer)
    """Signals since the last crawl."""
    crawls: Mapped[int] = mapped_column(Integer)
    changes: Mapped[int] = mapped_column(Integer)
    failures: Mapped[int] = mapped_column(Integer)
    """Consecutive failed crawls; of a page that is gone: `misses`, and what failed since."""
    misses: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    """404s among them; a 410 counts as three."""
    status: Mapped[int] = mapped_column(SmallInteger)
    page_class: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    """Number of its class in `page_classes`; 0: none."""
    history: Mapped[bytes] = mapped_column(LargeBinary)
    """The last crawl records, packed to a fixed width (`shared.store.history`)."""
    signal_times: Mapped[bytes] = mapped_column(LargeBinary, server_default="")
    """When each source sent its last signal, where several have sent any
    (`shared.store.source_times`); else empty."""


class PageClass(Base):
    """A class that pages of a shard have (`shared.store.page_classes`)."""

    __tablename__ = "page_classes"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(Text)


class PageUrl(Base):
    """Insert-only sister of `pages`: URLs are long and never change."""

    __tablename__ = "page_urls"
    __table_args__ = ({"postgresql_partition_by": "LIST (shard)"},)

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    page_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    url: Mapped[str] = mapped_column(Text)


class Host(Base):
    """A host, its rules, and what is known of its pages in common."""

    __tablename__ = "hosts"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    host_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    host: Mapped[str] = mapped_column(Text)
    max_crawls_per_second: Mapped[float | None] = mapped_column(Double)
    """The operators' limit; NULL: the configured default."""
    blocked_until: Mapped[float] = mapped_column(Double)
    """The operators' block."""
    crawl_delay: Mapped[float | None] = mapped_column(Double)
    """Of robots.txt, seconds."""
    asked_until: Mapped[float] = mapped_column(Double, server_default="-infinity")
    """The host asked to be left alone until then."""
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
    """Crawls in a row that did not reach it (`shared.rules.host_rules`)."""
    failed_at: Mapped[float] = mapped_column(Double, server_default="-infinity")
    """The last of them that counted."""
    max_open_requests: Mapped[int | None] = mapped_column(SmallInteger)
    """The operators' bound of requests that are not answered yet; NULL: none."""
    named_group: Mapped[str | None] = mapped_column(Text)
    """That crawl outcomes say it is of (`shared.rules.host_groups`); NULL: none has said so."""
    named_since: Mapped[float] = mapped_column(Double, server_default="-infinity")
    """Time of the crawl by which it came to that group."""
    limit_updated_at: Mapped[float] = mapped_column(Double)
    prior_shape: Mapped[float | None] = mapped_column(Double)
    """A of the host's Gamma(A, B) prior of α; NULL: not learned yet."""
    prior_rate: Mapped[float | None] = mapped_column(Double)
    """B of the host's Gamma(A, B) prior of α, days."""
    prior_precision: Mapped[float | None] = mapped_column(Double)
    """Mean precision of the host's signals, all sources together."""
    sources: Mapped[str] = mapped_column(Text)
    """Names of the sources that have a slot of their own, as JSON."""
    learning: Mapped[bytes | None] = mapped_column(LargeBinary)
    """Precision by source and burst tables, packed to a fixed width (`shared.store.hosts`)."""
    factors: Mapped[bytes] = mapped_column(LargeBinary, server_default="")
    """What the directories and signals of pages say of their rates (`shared.store.host_factors`);
    empty: nothing yet."""
    quiet_found: Mapped[float] = mapped_column(Double, server_default="0")
    """E: changes found by quiet crawls of pages that had never changed."""
    quiet_predicted: Mapped[float] = mapped_column(Double, server_default="0")
    """X: changes predicted of them."""
    quiet_belief: Mapped[float] = mapped_column(Double, server_default="1")
    """Q: what is told of such pages is their rate times this."""


OBSERVATIONS: Final = Table(
    "observations",
    Base.metadata,
    Column("shard", SmallInteger, nullable=False),
    Column("page_id", BigInteger, nullable=False),
    Column("recorded_at", Double, nullable=False),
    Column("crawled_at", Double, nullable=False),
    Column("interval_days", Double, nullable=False, comment="since the crawl before"),
    Column("signals", Integer, nullable=False, comment="in the interval"),
    Column("changed", Boolean, nullable=False),
    # What was predicted (`writer.Observations`); NULL in rows that are older than these columns.
    Column("staleness", REAL),
    Column("fresh_days", REAL),
    Column("sources", SmallInteger),
    postgresql_partition_by="RANGE (recorded_at)",
)
"""What each crawl found; appended by COPY, without a key, partitioned by the time of writing so
that old ones can be dropped."""


class StreamPosition(Base):
    """How far a consumer's effects on this database reach into a partition."""

    __tablename__ = "stream_positions"

    consumer: Mapped[str] = mapped_column(Text, primary_key=True)
    topic: Mapped[str] = mapped_column(Text, primary_key=True)
    partition: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    next_offset: Mapped[int] = mapped_column(BigInteger)


class ShardOwner(Base):
    """Which estimator writes a shard (`shared.store.owners`)."""

    __tablename__ = "shard_owners"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Of the ownership; rises with each."""
    holder: Mapped[str] = mapped_column(Text)
    """Name of the owner, as no other process has it."""
    since: Mapped[float] = mapped_column(Double)
    """By the server's own clock."""
    announcing_pages: Mapped[bytes] = mapped_column(LargeBinary, server_default="")
    """Ids of the pages that the last commit's announcements are about, little-endian int64."""
    announcing_hosts: Mapped[bytes] = mapped_column(LargeBinary, server_default="")
    """Ids of the hosts."""


class PageImport(Base):
    """Pages that came, or were changed, by an import: schedulers look here (`imports`)."""

    __tablename__ = "page_imports"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Rises with each commit of an import that has pages of this shard."""
    page_ids: Mapped[bytes] = mapped_column(LargeBinary)
    """Little-endian int64."""
    imported_at: Mapped[float] = mapped_column(Double)


class ErasedPage(Base):
    """A page of which nothing else is kept (`shared.store.erasing`)."""

    __tablename__ = "erased_pages"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    page_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    erased_at: Mapped[float] = mapped_column(Double)
    """Time of the update that said so."""


class ErasedHost(Base):
    """A host of which nothing else is kept."""

    __tablename__ = "erased_hosts"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    host_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    erased_at: Mapped[float] = mapped_column(Double)


class UnansweredPage(Base):
    """A page whose last requests nobody answered in time (`shared.store.unanswered`)."""

    __tablename__ = "unanswered_pages"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    page_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    requests: Mapped[int] = mapped_column(SmallInteger)
    """How many in a row, up to the last one."""
    requested_at: Mapped[float] = mapped_column(Double)
    """Of the last one."""
    deadline_at: Mapped[float] = mapped_column(Double)
    """Until when that waited."""
    last_attempt_at: Mapped[float] = mapped_column(Double)
    """As its scheduler knew it; a later one has answered."""


class StreamTopic(Base):
    """Which topic the positions are about (`shared.store.stream_topics`)."""

    __tablename__ = "stream_topics"

    topic: Mapped[str] = mapped_column(Text, primary_key=True)
    """Without prefix."""
    topic_id: Mapped[str] = mapped_column(Text)
    """The broker's."""


class CoordinatorLease(Base):
    """Which coordinator leads: one row (`shared.store.lease`)."""

    __tablename__ = "coordinator_lease"
    __table_args__ = (CheckConstraint("id = 1", name="coordinator_lease_has_one_row"),)

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Of the leadership; rises with each."""
    holder: Mapped[str] = mapped_column(Text)
    """Name of the leader; empty: it gave the lease back."""
    beat: Mapped[int] = mapped_column(BigInteger)
    """Counted up by the leader as a sign of life."""
    session_pid: Mapped[int | None] = mapped_column(Integer)
    session_start: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """The leader's connection to the database."""


class MultiplierRecord(Base):
    """Every λ₀ that the coordinator sent, and why."""

    __tablename__ = "multiplier_history"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)
    computed_at: Mapped[float] = mapped_column(Double)
    effective_at: Mapped[float] = mapped_column(Double)
    multiplier: Mapped[float] = mapped_column(Double)
    """λ₀."""
    crawls_per_second: Mapped[float] = mapped_column(Double)
    cause: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text, server_default="")
    """The cause in words."""
    epoch: Mapped[int] = mapped_column(BigInteger, server_default="0")
    leader: Mapped[str] = mapped_column(Text, server_default="")
    ramp_to: Mapped[float | None] = mapped_column(Double)
    ramp_seconds: Mapped[float] = mapped_column(Double, server_default="0")
    achieved_crawls_per_second: Mapped[float | None] = mapped_column(Double)
    """What the shards reported then, together."""
    achieved_ratio: Mapped[float | None] = mapped_column(Double)
    """Crawls to slots of the budget in the last seconds before."""
    live_shards: Mapped[int | None] = mapped_column(Integer)
    slot_value: Mapped[float | None] = mapped_column(Double)
    """What a slot was worth then; NULL: not known, or an older version has written it."""
    shards: Mapped[list[int] | None] = mapped_column(
        ARRAY(SmallInteger), comment="those with a share"
    )
    shares: Mapped[list[float] | None] = mapped_column(
        ARRAY(REAL), comment="of the shards, in their order"
    )


class LetInPage(Base):
    """A page that a link made, and estimators may not have yet (`shared.store.let_in`)."""

    __tablename__ = "let_in_pages"

    page_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    host_id: Mapped[int] = mapped_column(BigInteger)
    place: Mapped[int] = mapped_column(Integer)
    let_in_at: Mapped[float] = mapped_column(
        Double, server_default=text("extract(epoch FROM now())")
    )
    """Unix seconds of the database's clock."""


class LetInHost(Base):
    """How many pages links ever made of a host (`shared.store.let_in`)."""

    __tablename__ = "let_in_hosts"

    host_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    place: Mapped[int] = mapped_column(Integer)
    """From which its shard follows, for any number of shards."""
    pages: Mapped[int] = mapped_column(BigInteger, server_default="0")


class OperatorChange(Base):
    """Who changed the budget, or a host's limit (`shared.store.changes`)."""

    __tablename__ = "operator_changes"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    changed_at: Mapped[float] = mapped_column(Double)
    who: Mapped[str] = mapped_column(Text)
    about: Mapped[str] = mapped_column(Text)
    host: Mapped[str | None] = mapped_column(Text)
    change: Mapped[dict[str, Any]] = mapped_column(JSONB)
