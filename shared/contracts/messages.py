"""The messages on the topics, as strictly typed structs.

Messages are JSON, which has no NaN and no infinity. Unknown fields pass, wrong ones are refused
with the reason. Times are Unix seconds; rates of crawls per second, of the page model per day.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from shared.contracts.addresses import usual_address
from shared.contracts.daily import ScheduledRate, require_rising
from shared.contracts.fields import (
    MAX_CRAWL_DELAY_SECONDS,
    MAX_DIGEST_LENGTH,
    MAX_LINKS,
    MAX_RETRY_AFTER_SECONDS,
    MOST_GROUPS,
    MOST_OPEN_REQUESTS,
    Count,
    CrawlRate,
    Days,
    Demand,
    DirectoryCode,
    Evidence,
    Group,
    Host,
    Importance,
    Multiplier,
    NamedGroup,
    NonNegative,
    PageClass,
    PageId,
    Rate,
    Reason,
    Result,
    Shard,
    SlotNumber,
    Source,
    UnixSeconds,
    Url,
)
from shared.contracts.reported import ClassCrawls, GroupPages, ReasonCrawls
from shared.contracts.request_ids import crawl_time
from shared.contracts.shares import DefaultShares, Named


class Signal(Struct, frozen=True, gc=False):
    """`signals`: somebody says that a page may have changed. Untrusted."""

    url: Url
    source: Source
    observed_at: UnixSeconds | None = None
    """Without it the record's arrival time counts."""


class PageSignal(Struct, frozen=True, gc=False):
    """`page-signals`: a clean signal, about a canonical URL."""

    page_id: PageId
    url: Url
    host: Host
    source: Source
    observed_at: UnixSeconds


class CrawlRequest(Struct, frozen=True, gc=False):
    """`crawl-requests`: please crawl this page now."""

    request_id: Annotated[str, Meta(min_length=1, max_length=64)]
    page_id: PageId
    url: Url
    host: Host
    requested_at: UnixSeconds
    """The moment of the budget's slot that this request fills."""
    deadline_at: UnixSeconds
    """Without an outcome by then, the crawl counts as failed, and is tried again later."""
    crawl_value: NonNegative
    threshold: NonNegative
    reason: Reason


class CrawlOutcome(Struct, frozen=True, gc=False):
    """`crawl-outcomes`: what a crawl found. Either `result` or `digest` must be there."""

    url: Url
    crawled_at: UnixSeconds
    """When the content was read; never before it was asked for (`request_ids.crawl_time`)."""
    host: Annotated[str, Meta(max_length=300)] = ""
    request_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """Absent for a crawl that nobody asked for."""
    result: Result | None = None
    """`not_modified`: the server says so (304). `redirected`: the address only leads elsewhere.
    `canonical`: the page says that another URL is the one to keep. `disallowed`: robots.txt forbids
    it. `failed`: the page was not got, and may be there."""
    digest: Annotated[str, Meta(min_length=1, max_length=MAX_DIGEST_LENGTH)] | None = None
    """Of the meaningful content: another digest than the last one means changed."""
    http_status: Annotated[int, Meta(ge=0, le=999)] | None = None
    retry_after_seconds: NonNegative | None = None
    """For so long the host wants to be left alone. More than 1e9 counts as 1e9."""
    redirected_to: str | None = None
    """Of `redirected`: where to; absent: not said. What is no URL of a page is left out."""
    canonical_url: str | None = None
    """Of `canonical`: the URL to keep; absent: not said. Otherwise as `redirected_to`."""
    group: NamedGroup | None = None
    """What the host shares with others, as the address that was connected to, in any spelling. Its
    limit holds for all of them together (`group-limits`). A host changes it once a day at most."""

    def __post_init__(self) -> None:
        """Take a crawl to have been no earlier than it was asked for, and refuse what cannot be.

        Raises:
            ValueError: it says nothing, or where a page leads that does not lead elsewhere.
        """
        if self.request_id is not None:
            structs.force_setattr(self, "crawled_at", crawl_time(self.crawled_at, self.request_id))
        if self.group is not None:
            structs.force_setattr(self, "group", usual_address(self.group) or self.group)
        if (self.retry_after_seconds or 0.0) > MAX_RETRY_AFTER_SECONDS:
            structs.force_setattr(self, "retry_after_seconds", MAX_RETRY_AFTER_SECONDS)
        if self.result is None and self.digest is None:
            raise ValueError("an outcome needs `result` or `digest`: add one of them")
        if self.redirected_to is not None and self.result != "redirected":
            raise ValueError("`redirected_to` belongs to the result `redirected`: leave it out")
        if self.canonical_url is not None and self.result != "canonical":
            raise ValueError("`canonical_url` belongs to the result `canonical`: leave it out")


class Discovery(Struct, frozen=True, gc=False):
    """`discoveries`: a page that was crawled links to these URLs."""

    url: Url
    """The page that links."""
    links: Annotated[list[str], Meta(max_length=MAX_LINKS)]
    """Absolute URLs. More than so many make several messages. Pages say what they like here: what
    is no URL of a page is left out, and the others count."""
    found_at: UnixSeconds | None = None
    """Without it, or where it is later, the record's arrival counts."""
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Of the page that links: how many links away from where the crawl began; absent: not known."""


class PageUpdate(Struct, frozen=True, gc=False):
    """`page-updates`: add a page, change its weight or bounds, or remove one that is there."""

    op: Literal["upsert", "remove"]
    url: Url
    importance: Importance | None = None
    """Absent: 1 for a new page, unchanged for a known one."""
    max_age_days: Days | None = None
    """Absent: no bound of its own for a new page, unchanged for a known one."""
    updated_at: UnixSeconds | None = None
    """Without it the record's arrival time counts. An older update never undoes a newer one."""
    crawled_at: UnixSeconds | None = None
    """When the copy that is already held was crawled; absent: the page has never been crawled."""
    urgent: bool = False
    """Crawl it at once, within its host's limits and the budget. A crawl that gets the page, at
    `updated_at` or later, is the answer: the same message read again asks for no other."""
    no_max_age: bool = False
    """The page has no bound of its own any more."""
    for_good: bool = False
    """Of `remove`: nothing is kept of the page, nor of what was learned of it. Older updates, and
    what crawls and signals still say of it, do not bring it back; a newer update makes it new."""
    whole_host: bool = False
    """Of `remove` for good: all pages of the URL's host, what was learned of it, and its rules."""
    page_class: PageClass | UnsetType | None = field(default=UNSET, name="class")
    """Of the page; operators set its weight or part of the slots (`FRESHET_CLASSES`). Absent: none
    for a new page, unchanged for a known one; null: none any more."""

    def __post_init__(self) -> None:
        """Refuse a bound that is both set and taken away, and an upsert that erases.

        Raises:
            ValueError: it is one of these.
        """
        if (self.for_good or self.whole_host) and self.op != "remove":
            raise ValueError("`for_good` and `whole_host` belong to `remove`: leave them out")
        if self.whole_host and not self.for_good:
            raise ValueError("`whole_host` needs `for_good`: what is kept of a page has a host")
        if self.no_max_age and self.max_age_days is not None:
            raise ValueError("`no_max_age` and `max_age_days` contradict each other: leave one out")


class PageParameters(Struct, frozen=True, gc=False):
    """`page-parameters`: what was learned of a page, sent when it changes materially."""

    page_id: PageId
    host: Host
    unsignalled_change_rate: Rate | None
    """α, per day, burst multiplier apart. Absent: the page has no crawl record yet, and what
    `host-parameters` says of its host holds."""
    signal_evidence: Annotated[float, Meta(ge=0)] | None
    """κ̄ = αβ of a signal of whatever source. Absent: as above."""
    signal_rate: Rate
    """γ, per day."""
    updated_at: UnixSeconds
    epoch: Count = 0
    """Of the estimator's ownership of the shard. Messages of an older epoch than the newest seen on
    this topic are of an estimator that has been replaced: leave them out. 0: not said."""
    activity: Annotated[int, Meta(ge=0, le=6)] = 0
    """By the signals that the page ever had: 0, 1, 2–3, 4–7, 8–15, 16–63, more. The factor of its
    host for it (`activity_factors`) is part of the rate of a page without a crawl record."""


class HostParameters(Struct, frozen=True, gc=False):
    """`host-parameters`: what was learned of a host's pages in common, sent when it changes
    materially."""

    host: Host
    unsignalled_change_rate: Rate
    """A/B, per day, as far as quiet pages are believed: α of a page without a crawl record, times
    the factors of its directory and of its activity."""
    signal_evidence: Evidence
    """κ̄ = −ln(1 − p) of a signal of whatever source, at a page without a crawl record."""
    sources: Annotated[list[Source], Meta(max_length=3)]
    """Those that have a slot of their own, in order of appearance; the last slot is all others'."""
    source_evidence: Annotated[list[Evidence], Meta(min_length=4, max_length=4)]
    """κ_k = −ln(1 − p_k) by slot, p_k the prior precision: a signal of slot k weighs as much as
    κ_k/κ̄ signals."""
    burst_multipliers: Annotated[list[Multiplier], Meta(min_length=6, max_length=6)]
    """By the age of a page at its last crawl, since its last change: never changed, just changed,
    under 7, 30, 120 days ago, longer ago. The first holds at once, others from its next crawl."""
    updated_at: UnixSeconds
    epoch: Count = 0
    """Of the estimator's ownership of the shard, as in `page-parameters`."""
    activity_factors: Annotated[list[Multiplier], Meta(min_length=7, max_length=7)] = field(
        default_factory=lambda: [1.0] * 7
    )
    """By the activity of a page, in the order of `page-parameters`."""
    directories: Annotated[list[DirectoryCode], Meta(max_length=1024)] = []
    """Those whose pages change more or less often than others of the host, rising: the last 16 bits
    of the CRC-32 (as in zlib) of the URL's path up to and with its last `/`."""
    directory_factors: Annotated[list[Multiplier], Meta(max_length=1024)] = []
    """Of each. Of a directory that is not named: 1."""
    group: NamedGroup | None = None
    """That crawl outcomes say the host is of; absent: none has said so."""


class HostLimit(Struct, frozen=True, gc=False):
    """`host-limits`: how often a host may be crawled. Of all its rules the strictest holds."""

    host: Host
    max_crawls_per_second: CrawlRate | None = None
    """The operators' limit. Absent: the configured default."""
    blocked_until: UnixSeconds | None = None
    """The operators' block. Absent: not blocked."""
    crawl_delay_seconds: NonNegative | None = None
    """What the host's robots.txt asks for, from crawlers: no two crawls are nearer to each other.
    More than 1e7 counts as 1e7. Absent, or 0: nothing."""
    max_open_requests: Annotated[int, Meta(ge=1, le=MOST_OPEN_REQUESTS)] | None = None
    """The operators' bound of its requests that are asked for and not answered. Absent: none."""
    only: Literal["limit", "block", "crawl-delay", "open"] | None = None
    """What this message is about; all else stays. Absent: limit and block, or a delay alone."""

    def __post_init__(self) -> None:
        """Bound what a robots.txt asks for; who says nothing else speaks of that alone."""
        if (self.crawl_delay_seconds or 0.0) > MAX_CRAWL_DELAY_SECONDS:
            structs.force_setattr(self, "crawl_delay_seconds", MAX_CRAWL_DELAY_SECONDS)
        told = self.only, self.max_crawls_per_second, self.blocked_until
        if self.crawl_delay_seconds is not None and told == (None, None, None):
            structs.force_setattr(self, "only", "crawl-delay")


class GroupLimit(Struct, frozen=True, gc=False):
    """`group-limits`: how often all hosts of a group may be crawled together. The last holds."""

    group: Group
    """A domain: its host and all below it, of any port. Or a name that outcomes give: its hosts."""
    max_crawls_per_second: CrawlRate | None = None
    """The operators' limit. Absent: none."""


class Bandwidth(Struct, frozen=True, gc=False):
    """`bandwidth`: the budget of crawls for everything. Compacted: the last one stands."""

    crawls_per_second: CrawlRate
    """The rate, after a ramp. With a `schedule`: the rate when it was set, for readers that know no
    schedules."""
    set_at: UnixSeconds | None = None
    ramp_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """Clock seconds over which a change is spread evenly: from `ramp_from` at `set_at`, or each
    change of the schedule."""
    ramp_from: CrawlRate | None = None
    """The rate at `set_at`; needed for a ramp without a schedule."""
    schedule: Annotated[list[ScheduledRate], Meta(max_length=1440)] = []
    """Rates by the time of day, rising; the last one holds on until the first of the next day."""
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"
    """Whose days these are, as in the IANA database: Europe/Berlin."""

    def __post_init__(self) -> None:
        """Refuse a ramp without a beginning, and a schedule that is out of order.

        Raises:
            ValueError: says what is wrong.
        """
        if self.schedule:
            require_rising(self.schedule)
        elif self.ramp_seconds > 0 and (self.ramp_from is None or self.set_at is None):
            raise ValueError("a ramp needs `ramp_from` and `set_at`: add them")


class DemandCurve(Struct, frozen=True, gc=False):
    """`demand-curves`: what a shard would crawl under each threshold, and how it does."""

    shard: Shard
    instance: Annotated[str, Meta(min_length=1, max_length=200)]
    reported_at: UnixSeconds
    pages: Count
    thresholds: list[NonNegative]
    """Log grid of Λ, rising."""
    demand: list[Demand]
    """D(Λ) in crawls per second: the long-run rate under each threshold, host limits included."""
    ripe: list[NonNegative]
    """Pages worth at least Λ now (new and over-age ones anyway), as far as limits let them."""
    achieved_crawls_per_second: NonNegative
    host_limited_share: Annotated[float, Meta(ge=0, le=1)]
    """Share of the demand at λ₀ that host limits hold back."""
    marginal_value: NonNegative
    """Crawl value of the least valuable page crawled of late."""
    run: Annotated[str, Meta(max_length=64)] = ""
    """Of the reporting process with this shard: another one each time that it loads it."""
    sequence: Count = 0
    """Rises from report to report of a run: the higher is the newer, whatever the clock says."""
    answered_crawls_per_second: NonNegative = 0.0
    """Requests that the crawlers answered."""
    held_crawls_per_second: NonNegative = 0.0
    """Slots left empty as the crawlers are behind: they have not answered what they were asked."""
    unused_crawls_per_second: NonNegative = 0.0
    """Slots left empty as no page was to be crawled: all rest, wait or are below the floor."""
    groups: Annotated[list[GroupPages], Meta(max_length=MOST_GROUPS)] = []
    """Those of `multipliers` of which the shard has pages."""
    named: Named = []
    """Of those by the default limit: the divided ones, and some of which hosts wait for it."""
    reasons: Annotated[list[ReasonCrawls], Meta(max_length=16)] = []
    """Requests by their reason: those that there were, or that parts of the slots are kept for."""
    classes: Annotated[list[ClassCrawls], Meta(max_length=64)] = []
    """Of pages: those of which operators say something, and all others together."""


class Allotment(Struct, frozen=True, gc=False):
    """A shard's part of the bandwidth."""

    shard: Shard
    share: Annotated[float, Meta(ge=0, le=1)]


class GroupShares(Struct, frozen=True, gc=False):
    """A group with a limit, and which shards may crawl its hosts when.

    The limit is a sequence of slots of its own that all shards know. Each belongs to one shard, in
    the manner of the budget's, and is for one crawl (`shared.pacing.groups`).
    """

    group: Group
    crawls_per_second: CrawlRate
    """The limit."""
    since: UnixSeconds
    """From then on these shares hold."""
    first_slot: SlotNumber
    """How many of its slots (with a fraction) have passed then. One that had begun is nobody's."""
    allotments: list[Allotment]
    """A shard that is not there crawls no host of the group."""


class Multipliers(Struct, frozen=True, gc=False):
    """`multipliers`: λ₀ and the allotments that hold from `effective_at` on.

    The budget is one sequence of slots that all shards know; slot numbers run on through every
    change, and each belongs to exactly one shard (`shared.pacing.slots`).
    """

    version: Count
    computed_at: UnixSeconds
    effective_at: UnixSeconds
    multiplier: NonNegative
    """λ₀."""
    crawls_per_second: CrawlRate
    first_slot: SlotNumber
    """How many slots (with a fraction) have passed at `effective_at`."""
    allotments: list[Allotment]
    cause: str = ""
    """Why it was computed: start, bandwidth, demand, silent-shard, ..."""
    epoch: Count = 0
    """Of the coordinator's leadership. Messages of an older epoch than the newest seen are of a
    coordinator that has been replaced: leave them out. Versions run on through all epochs."""
    leader: Annotated[str, Meta(max_length=200)] = ""
    """The coordinator that sent it."""
    ramp_to: CrawlRate | None = None
    """The rate goes evenly from `crawls_per_second` to this one; absent: it stays."""
    ramp_seconds: NonNegative = 0.0
    """Clock seconds, from `effective_at` on, in which it does."""
    why: Annotated[str, Meta(max_length=1000)] = ""
    """The cause in words, for people."""
    append_by: UnixSeconds | None = None
    """Wall time by which the broker must have appended the message, by its own clock. A later one
    counts for nobody: others may have filled slots without it."""
    groups: Annotated[list[GroupShares], Meta(max_length=MOST_GROUPS)] = []
    """All that have a limit of their own."""
    default_groups: DefaultShares | None = None
    """Of all others that outcomes name. Absent: they have no limit."""
