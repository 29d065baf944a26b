"""The tables of what is watched outside: hubs, streams of events, and sites (see `models`)."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Double, ForeignKey, Integer, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from shared.store.models import Base

ALL_TABLES: Final = Base.metadata
"""Those of `models` too."""


class WebSubSubscription(Base):
    """What the receiver has subscribed to (`shared.store.subscriptions`)."""

    __tablename__ = "websub_subscriptions"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    topic: Mapped[str] = mapped_column(Text, unique=True)
    wanted_hub: Mapped[str | None] = mapped_column(Text)
    """By an operator."""
    hub: Mapped[str] = mapped_column(Text, server_default="")
    hub_topic: Mapped[str] = mapped_column(Text, server_default="")
    """What the hub calls the topic."""
    secret: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text)
    """wanted, active, unwanted or refused."""
    reason: Mapped[str] = mapped_column(Text, server_default="")
    attempts: Mapped[int] = mapped_column(Integer, server_default="0")
    lease_ends: Mapped[float] = mapped_column(Double, server_default="-infinity")
    next_try_at: Mapped[float] = mapped_column(Double, server_default="-infinity")


class PingAccount(Base):
    """What the receiver has handed on of a source (`shared.store.ping_accounts`)."""

    __tablename__ = "ping_accounts"

    source: Mapped[str] = mapped_column(Text, primary_key=True)
    signals: Mapped[int] = mapped_column(BigInteger, server_default="0")
    exact_signals: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Those that say when their page changed."""
    delay_seconds: Mapped[float] = mapped_column(Double, server_default="0")
    """Of them all, from these times to their arrival."""


class StreamCursor(Base):
    """Where a stream of events stands that the poller reads (`shared.store.stream_cursors`)."""

    __tablename__ = "stream_cursors"

    source: Mapped[str] = mapped_column(Text, primary_key=True)
    cursor: Mapped[str] = mapped_column(Text)
    """As the stream's server has it."""
    url: Mapped[str] = mapped_column(Text, server_default="")
    """Without what may be secret of it."""
    since: Mapped[float] = mapped_column(Double, server_default="infinity")
    """When it was asked for first."""
    read_at: Mapped[float] = mapped_column(Double, server_default="-infinity")
    """When this was written."""
    connections: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """That were asked for."""
    failures: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Of them in a row, up to the last, those that brought no event."""
    reason: Mapped[str] = mapped_column(Text, server_default="")
    """Why the last of these did not."""
    gaps: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Times that its server had forgotten our place."""
    bytes_read: Mapped[int] = mapped_column(BigInteger, server_default="0")
    events: Mapped[int] = mapped_column(BigInteger, server_default="0")
    bad_events: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Of them, those that could not be read."""
    signals: Mapped[int] = mapped_column(BigInteger, server_default="0")
    exact_signals: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Those that have a time."""
    delay_seconds: Mapped[float] = mapped_column(Double, server_default="0")
    """Of them all, from their times to our reading."""
    worth: Mapped[float] = mapped_column(Double, server_default="0")
    """As of a watched source."""
    worth_signals: Mapped[float] = mapped_column(Double, server_default="0")
    worth_days: Mapped[float] = mapped_column(Double, server_default="0")


class WatchedSite(Base):
    """A site that the poller watches (`shared.store.watched`)."""

    __tablename__ = "watched_sites"

    site: Mapped[str] = mapped_column(Text, primary_key=True)
    """Where it begins, a URL."""
    hosts: Mapped[list[str]] = mapped_column(ARRAY(Text))
    """Whose pages count."""
    include: Mapped[list[str]] = mapped_column(ARRAY(Text))
    exclude: Mapped[list[str]] = mapped_column(ARRAY(Text))


class WatchedSource(Base):
    """A sitemap, a feed or the robots.txt of a watched site, and where it stands."""

    __tablename__ = "watched_sources"

    url: Mapped[str] = mapped_column(Text, primary_key=True)
    site: Mapped[str] = mapped_column(Text, ForeignKey("watched_sites.site"), index=True)
    host: Mapped[str] = mapped_column(Text)
    """That is asked for it."""
    source: Mapped[str] = mapped_column(Text)
    """Of its signals."""
    kind: Mapped[str] = mapped_column(Text, server_default="")
    """robots, index, sitemap or feed; empty: it was never read."""
    found_by: Mapped[str] = mapped_column(Text)
    etag: Mapped[str] = mapped_column(Text, server_default="")
    last_modified: Mapped[str] = mapped_column(Text, server_default="")
    digest: Mapped[bytes] = mapped_column(LargeBinary, server_default="")
    seen: Mapped[bytes] = mapped_column(LargeBinary, server_default="")
    """Hashes of its addresses and their dates, 12 bytes each."""
    interval_seconds: Mapped[float] = mapped_column(Double, server_default="0")
    next_poll_at: Mapped[float] = mapped_column(Double, server_default="-infinity")
    polled_at: Mapped[float] = mapped_column(Double, server_default="-infinity")
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
    """In a row."""
    reason: Mapped[str] = mapped_column(Text, server_default="")
    """Why it failed last."""
    entries: Mapped[int] = mapped_column(Integer, server_default="0")
    """Of its document."""
    pages: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """That it brought."""
    signals: Mapped[int] = mapped_column(BigInteger, server_default="0")
    exact_signals: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Those whose times are more than days."""
    delay_seconds: Mapped[float] = mapped_column(Double, server_default="0")
    """Of them all, from their times to the poll."""
    polls: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Requests that it has cost, those that failed too."""
    by_value: Mapped[bool] = mapped_column(Boolean, server_default="false")
    """Whether `interval_seconds` is by what a poll is worth (`shared.policy.polls`)."""
    worth: Mapped[float] = mapped_column(Double, server_default="0")
    """Of the pages that it has shown of late; older ones count less and less."""
    worth_signals: Mapped[float] = mapped_column(Double, server_default="0")
    """How many they were."""
    worth_days: Mapped[float] = mapped_column(Double, server_default="0")
    """In which they came."""
