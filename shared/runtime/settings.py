"""Settings: by environment and file, validated, with the wrong one named.

Every setting can be given as an environment variable `FRESHET_<NAME>` or in a TOML file
(`./freshet.toml`, or the path in `FRESHET_SETTINGS_FILE`); the environment wins. The two that
everybody needs, `KAFKA_BOOTSTRAP_SERVERS` and `DATABASE_URL`, carry no prefix. Secrets may stand in
files of their own (`shared.runtime.secret_files`).
"""

import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from shared.contracts.layout import MOST_SHARDS
from shared.runtime.clock import AcceleratedClock, Clock, SystemClock
from shared.runtime.databases import check_databases
from shared.runtime.kafka_security import check_kafka_security
from shared.runtime.objectives import ObjectivesByDomain
from shared.runtime.page_class_terms import PageClassTerms
from shared.runtime.reason_shares import ReasonShares
from shared.runtime.secret_files import SecretFileError, read_secrets, variables
from shared.runtime.setting_kinds import (
    ENV_PREFIX,
    Brokers,
    ClassByUrl,
    CrawlRate,
    FilePath,
    HostPatternNames,
    ImportanceByUrl,
    InstanceName,
    Networks,
    NonNegative,
    Positive,
    RequestSeconds,
    Secret,
    SessionSeconds,
    SourceName,
    StallSeconds,
    TopicPrefix,
    UrlPatterns,
    WebUrl,
    WebUrls,
    named_faults,
    unprefixed,
    unreadable,
)
from shared.runtime.setting_pairs import check_pairs
from shared.units import SECONDS_PER_DAY

FILE_VARIABLE = f"{ENV_PREFIX}SETTINGS_FILE"


class SettingsError(Exception):
    """The configuration cannot be used; the text names each wrong setting."""


def settings_file() -> Path:
    """The TOML file that settings are read from; where none is named, it need not exist."""
    return Path(os.environ.get(FILE_VARIABLE, "freshet.toml"))


class Settings(BaseSettings):
    """All settings of all workers. `_seconds` are seconds of the wall unless the text says else."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, populate_by_name=True
    )

    # Kafka
    kafka_bootstrap_servers: Annotated[Brokers, unprefixed("KAFKA_BOOTSTRAP_SERVERS")] = (
        "127.0.0.1:9092"
    )
    """Comma-separated host:port of the brokers; without a port, 9092."""
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    kafka_sasl_username: str | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_ssl_cafile: FilePath | None = None
    """Certificate authority of the brokers; absent: the system's."""
    kafka_ssl_certfile: FilePath | None = None
    kafka_ssl_keyfile: FilePath | None = None
    kafka_session_timeout_seconds: SessionSeconds = 10.0
    """A worker that the broker does not hear for so long loses its shards."""
    topic_prefix: TopicPrefix = ""
    """Set before every topic and consumer group, to share a cluster."""
    partitions: Annotated[int, Field(ge=1, le=MOST_SHARDS)] = 64
    """Shards of a new installation, which are the partitions of every host-keyed topic. Afterwards
    the database says how many there are: `freshet shards grow`."""
    replication_factor: Annotated[int, Field(ge=1, le=32_767)] = 1

    # Postgres
    database_url: Annotated[SecretStr, unprefixed("DATABASE_URL")] = SecretStr(
        "postgresql://freshet@127.0.0.1:5432/freshet"
    )
    """libpq URL; TLS by its own parameters (sslmode, sslrootcert, ...)."""
    databases: SecretStr | None = None
    """Several databases in place of DATABASE_URL, each with its range of shards:
    0-127=postgresql://a/freshet,128-255=postgresql://b/freshet. Absent: one has everything."""

    # Process
    instance: InstanceName = Field(default_factory=socket.gethostname)
    """Name of this replica, stable over restarts: keeps its shards through a short one."""
    operator: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name that changes are noted under (`freshet changes`); absent: user's and machine's."""
    http_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Health, metrics and, at the coordinator, the picture; 0: the worker's own default."""
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    stall_seconds: StallSeconds = 60.0
    """A worker whose loop or batch makes no progress for so long ends itself."""
    loop_lag_warning_seconds: Positive = 0.5
    """An event loop that was blocked for so long is warned of in the log."""
    trace_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of signals, and of crawl requests that no traced signal led to, whose way is traced
    (OpenTelemetry, by OTEL_EXPORTER_OTLP_ENDPOINT and its like); 0: none."""
    fetch_buffer_bytes: Annotated[int, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    """About how much a worker's consumer reads ahead, all partitions together."""
    bad_messages_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """A worker that finds more than this share of a topic's messages bad stops reading, instead of
    setting the whole topic aside; 1: never. Not for `signals`, which are untrusted."""
    bad_messages_least: Annotated[int, Field(ge=1)] = 1_000
    """The share counts from so many messages on."""
    bad_messages_window_seconds: Positive = 300.0
    """The share is that of about the last so many seconds."""

    # Clock
    clock_gate: FilePath | None = None
    """Set for a simulated time: the file whose appearance starts it. Absent: the real time."""
    clock_origin: NonNegative = 0.0
    """Simulated Unix seconds at the start."""
    clock_speed: Positive = 1.0
    """Simulated seconds in a second of the wall."""

    # Ingester
    signal_debounce_seconds: NonNegative = 60.0
    """Clock seconds in which a source's repeated signal for a URL counts once."""
    signal_future_tolerance_seconds: NonNegative = 300.0
    """Clock seconds that a signal may lie in the future."""
    signal_max_age_days: Positive = 7.0
    signals_per_source_per_second: Positive = 20_000.0
    """Rate limit of each source, clock seconds; ten seconds' worth may come at once."""
    signal_sources: tuple[SourceName, ...] = ()
    """Sources that are known, as JSON: ["sitemaps", "cms"]. They keep their limits and their
    records whatever names others make up; repetitions of all others count as those of four."""
    signals_from_others_per_second: Positive = 40_000.0
    """Rate limit of all sources together that `signal_sources` does not name, clock seconds."""
    signals_from_others_share: NonNegative = 0.2
    """Where some sources are named: so many signals may all others send to each of a named one.
    At a fifth, useless signals cost less than a hundredth of the freshness."""
    signal_source_keys: dict[SourceName, Secret] = {}
    """Named sources that must prove who they are, as JSON: {"cms": "secret"}. Each record of
    theirs carries the secret in its header `source-key`; a name alone can be anybody's."""
    refused_signals_kept_per_second: NonNegative = 20.0
    """Refused signals that are copied to the dead letters, after the first thousand; those of a
    flood are only counted."""
    allow_private_hosts: bool = False
    """Take pages and signals of hosts not on the public internet; fetch what they name there."""

    # Estimator
    batch_max_messages: Annotated[int, Field(ge=1)] = 20_000
    batch_linger_seconds: NonNegative = 0.05
    """How long a batch waits to fill."""
    signal_delay_seconds: NonNegative = 0.0
    """T_delay: signals this soon (clock seconds) after a crawl are about what it saw."""
    material_change: Positive = 0.05
    """Relative change of a parameter that is published."""
    estimator_resident_pages: Annotated[int, Field(ge=1)] = 1_000_000
    """Pages that an estimator keeps in memory; others are read when they are named."""
    prior_refit_days: Positive = 2.0
    """Clock days between two refits of host priors; the first ones come sooner."""
    observations_kept_days: Positive = 180.0
    """Clock days until what crawls found is dropped, by four weeks; what was learned stays."""
    multiplier_history_kept_days: Positive = 90.0
    """Clock days after which the coordinator's decisions are forgotten."""

    # Scheduler
    policy: Literal["crawl-value", "uniform"] = "crawl-value"
    """uniform: the oldest page first, for comparison."""
    tick_seconds: Positive = 0.05
    """Wall seconds between two times that slots are filled; twice as many where that takes long."""
    request_timeout_seconds: RequestSeconds = 120.0
    """Without an outcome for so long a crawl has failed. Crawlers must answer in half of it."""
    default_host_crawls_per_second: Positive = 1.0
    """Limit of a host (clock seconds) that `host-limits` says nothing about."""
    group_crawls_per_second: CrawlRate | None = None
    """Limit (clock seconds) of all hosts together that crawlers find at one address, or name one
    group, but where `freshet groups limit` says another; absent: none. Coordinators go by it."""
    default_max_age_days: Positive | None = None
    """A page is crawled at least this often; absent: only where the page says so."""
    least_interval_seconds: NonNegative = 300.0
    """Clock seconds from a page's last crawl to the next at least, whatever it is worth and however
    large the budget is; a failed one waits for as long, too. A maximum age cannot be shorter."""
    least_value: NonNegative = 0.0
    """Crawl value below which no slot is spent on a page that was crawled before, beyond its
    maximum age or not; 0: none. What is left of the budget stays unused, and is reported."""
    reason_shares: ReasonShares = {}
    """Parts of the slots of each shard that are kept for reasons to crawl, as JSON: {"new": 0.2,
    "max-age": 0.3, "value": 0.3}; also urgent. A part that finds no page goes to the others. None:
    what is asked for at once goes first, then new pages, then those beyond their maximum age."""
    classes: PageClassTerms = {}
    """What classes of pages are worth, as JSON: {"news": {"weight": 2}, "partner": {"share": 0.3}}.
    A weight multiplies their importance; a share is a part of each shard's slots that is kept for
    them, where they use it. 32 classes at most, seven with shares. The same for all workers."""
    objectives: ObjectivesByDomain = {}
    """What pages are crawled for, by domain, the same for all workers, as JSON: {"default":
    "freshness", "example.com": "harmonic", "docs.example.org": {"age": 0.3}}. None: freshness."""
    longest_host_pause_seconds: Positive = SECONDS_PER_DAY
    """The longest pause (clock seconds) that a host may ask for, by Retry-After."""
    failed_retry_seconds: Positive = 300.0
    """Clock seconds (`least_interval_seconds` if longer) until a page whose crawl failed is tried
    again; twice as long after the second, then when the time since its last good one doubled."""
    work_conserving: bool = True
    """Spend budget on pages below the threshold when none is above it."""
    report_seconds: Positive = 1.0
    """Between a shard's demand reports; at most half of `silent_after_seconds`."""

    # Coordinator
    silent_after_seconds: Positive = 3.0
    """A shard that has not reported for so long loses its budget to the others."""
    coordinator_lease_seconds: Annotated[float, Field(ge=2, le=3600)] = 3.0
    """A leading coordinator that shows no sign of life for so long is replaced by another."""
    effective_lead_seconds: Annotated[float, Field(ge=0.3, le=3600)] = 0.5
    """How far ahead new multipliers take effect at least, so that every scheduler has them by then.
    Where messages come too late to count, the coordinator looks further ahead by itself."""
    view_database_url: SecretStr | None = None
    """libpq URL by which the coordinator's page looks up pages, hosts, sources and crawls: that of
    a user who may read them (`freshet_readonly`); absent: DATABASE_URL."""
    view_databases: SecretStr | None = None
    """The same of several databases, in the ranges of `databases`."""
    scheduler_urls: Annotated[WebUrls, unprefixed("SCHEDULER_URLS")] = "http://127.0.0.1:6067"
    """Web servers of the schedulers, with spaces between them: `freshet explain` and the
    coordinator's page ask them what they know of a page. All that a name stands for are asked."""

    # Receiver
    receiver_port: Annotated[int, Field(ge=1, le=65535)] = 6080
    """Where pings are taken over HTTP, on `http_host`; health and metrics stay on `http_port`."""
    receiver_tokens: dict[SourceName, Secret] = {}
    """Who may post to /signals and /events, as JSON: {"cms": "token"}, and as which source."""
    receiver_trusted_proxies: Networks = ()
    """Proxies of your own, as JSON: ["10.0.0.0/8", "::1"]. Their X-Forwarded-For is believed."""
    receiver_connections: Annotated[int, Field(ge=10)] = 2_000
    """Open connections at most; of one address a tenth of them."""
    receiver_max_body_bytes: Annotated[int, Field(ge=64 * 1024)] = 8 * 1024 * 1024
    """A longer body is refused, packed or unpacked."""
    receiver_urls_per_sender_per_second: Positive = 1_000.0
    """Limit of a host (IndexNow), of an address (weblogs' pings) and of a token's source, wall
    seconds; ten seconds' worth may come at once."""
    receiver_url: WebUrl = ""
    """Its address on the web, such as https://pings.example.com, where WebSub's hubs call back;
    absent: there are no subscriptions, and no database is needed."""
    websub_lease_days: Positive = 10.0
    """For so long hubs are asked to grant a subscription; each is renewed before it ends."""
    indexnow_recheck_hours: Positive = 24.0
    """The file of a valid key is looked at again after so long."""
    indexnow_key_wait_seconds: NonNegative = 1.0
    """How long a submission waits for a key file that is being fetched; then it is answered with
    202, and its signals are of the source indexnow-unchecked."""
    indexnow_engines: WebUrl = ""
    """The list of search engines whose `noreping` posts are taken, such as
    https://www.indexnow.org/searchengines.json; absent: none's are."""

    # Poller
    poller_streams: tuple[dict[str, str], ...] = ()
    """Streams of events that are read, as JSON: [{"url": "https://stream.wikimedia.org/v2/stream/"
    "mediawiki.page_change.v1", "source": "wikimedia", "format": "wikimedia"}]."""
    poller_user_agent: str = "Freshet"
    """What servers are told, and whom robots.txt is asked about; some servers, as Wikimedia's, want
    an address to write to in it."""
    poller_reconnect_seconds: Positive = 1.0
    """A stream that ends is connected to again after so long; later, where that does not help."""
    poller_shortest_seconds: Positive = 60.0
    """A sitemap or feed of a watched site is read at most this often, and tried again so soon after
    a first failure."""
    poller_longest_seconds: Positive = SECONDS_PER_DAY
    """It is read at least this often, whatever it brings."""
    poller_poll_crawls: Positive = 1.0
    """What a poll costs, in crawls: a sitemap or feed whose signals are worth so many is read."""
    poller_host_gap_seconds: NonNegative = 1.0
    """Between two requests to one host; longer where its robots.txt wants that."""
    poller_fetch_seconds: Positive = 60.0
    """One sitemap or feed may take so long to come."""

    # Frontier
    frontier_port: Annotated[int, Field(ge=1, le=65535)] = 7071
    """Where fleets that speak URLFrontier's API connect to, on `http_host`; health and metrics stay
    on `http_port`."""
    frontier_group: Annotated[str, Field(min_length=1)] = "crawlers"
    """The consumer group of crawl requests that it is a member of, with others of the fleet."""
    frontier_crawl_id: Annotated[str, Field(min_length=1, max_length=255)] = "DEFAULT"
    """The name of the one crawl, as its clients call it."""
    frontier_discoveries: bool = False
    """Make pages of the URLs that its clients discover, by the same rules as discoverers do."""
    frontier_max_requests: Annotated[int, Field(ge=100)] = 100_000
    """Crawl requests that are read and not answered yet; others wait in Kafka."""
    frontier_calls: Annotated[int, Field(ge=10, le=2**31 - 1)] = 1_000
    """Calls under way at most; others are told to come again."""
    frontier_max_message_bytes: Annotated[int, Field(ge=64 * 1024, le=2**31 - 1)] = 4 * 1024 * 1024
    """A longer message is refused."""

    # Discoverer, and the frontier's discoveries
    discovery_hosts: HostPatternNames = ("known",)
    """Whose pages links may add, as JSON: ["known", "example.com", "*.example.org"]. `known`: hosts
    that have pages already; `*.`: all hosts below a domain; `any`: of the whole web."""
    discovery_include: UrlPatterns = ()
    """Patterns of URLs that links may add, as JSON: ["https://*/news/*"]; `*` stands for anything.
    None: all of the hosts."""
    discovery_exclude: UrlPatterns = ()
    """Patterns of URLs that links do not add."""
    discovery_importance: ImportanceByUrl = {}
    """Importance of pages that links add, by patterns of URLs, as JSON: {"*/news/*": 5}; the
    first that fits counts. Others have importance 1."""
    discovery_classes: ClassByUrl = {}
    """Classes of pages that links add, by patterns of URLs, as JSON: {"*/news/*": "news"}; the
    first that fits counts. Others have none."""
    discovery_most_depth: Annotated[int, Field(ge=0)] | None = None
    """So many links away from where the crawl began; what comes without a depth is then left out.
    Absent: any number."""
    discovery_most_pages_of_host: Annotated[int, Field(ge=1)] = 100_000
    """A host that has so many pages gets no more by links."""
    discovery_most_segments: Annotated[int, Field(ge=1)] = 20
    """Parts of the path of a URL that a link adds; none of them more than three times."""
    discovery_most_query_characters: Annotated[int, Field(ge=0)] = 300
    """Characters of its query."""
    discovery_redirects: bool = True
    """Take where crawls were redirected to, and what pages call their canonical URL, for links."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments before environment before file."""
        file = TomlConfigSettingsSource(settings_cls, toml_file=settings_file())
        return init_settings, env_settings, file

    @model_validator(mode="after")
    def _fit_together(self) -> "Settings":
        check_kafka_security(self)
        check_pairs(self)
        if (home := check_databases(self)) is not None:
            # Who knows of one database only asks the home.
            object.__setattr__(self, "database_url", home)
        return self

    def clock(self) -> Clock:
        """The clock that every part takes its time from."""
        if self.clock_gate is None:
            return SystemClock()
        return AcceleratedClock(self.clock_origin, self.clock_speed, self.clock_gate)

    def topic(self, name: str) -> str:
        """The topic's name on this cluster."""
        return self.topic_prefix + name


def known_variables() -> set[str]:
    """Every environment variable that begins with the prefix and says something."""
    names = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    return names | {FILE_VARIABLE} | set(variables(ENV_PREFIX, Settings.model_fields))


def load_settings(**overrides: Any) -> Settings:
    """Read and check the settings.

    Raises:
        SettingsError: names each wrong setting, its value's fault, and where it is set.
    """
    file = settings_file()
    if FILE_VARIABLE in os.environ and (not file.exists() or file.is_dir()):
        raise SettingsError(f"{FILE_VARIABLE} names {str(file)!r}, which is no file")
    known = known_variables()
    unknown = sorted(
        name for name in os.environ if name.startswith(ENV_PREFIX) and name.upper() not in known
    )
    if unknown:
        raise SettingsError(
            f"unknown settings in the environment: {', '.join(unknown)}; "
            "`freshet settings` lists the known ones"
        )
    try:
        return Settings(**read_secrets(ENV_PREFIX, Settings.model_fields) | overrides)
    except SecretFileError as error:
        raise SettingsError(str(error)) from error
    except ValidationError as error:
        raise SettingsError(named_faults(error)) from None  # its own text has what was given
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(unreadable(error, file)) from error
