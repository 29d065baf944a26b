"""What a field of a message may hold, and how much of it."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.contracts.characters import text_of

MAX_URL_LENGTH = 2048
"""Longer URLs are refused: no page that people read needs one, and hostile ones do."""

MAX_SOURCE_LENGTH = 128
MAX_DIGEST_LENGTH = 256
MAX_LINKS = 1_000
"""Of a message; few pages have more."""

MAX_UNIX_SECONDS = 1e11
"""Year 5138: a time in milliseconds by mistake is larger, and is refused."""

MAX_RATE = 1e9
"""No rate of changes or signals is larger; a larger number is a fault of its sender."""

MAX_CRAWL_RATE = 1e6
"""Crawls per second that nobody could spend are refused: each is a slot to be filled."""

MAX_IMPORTANCE = 1e12
MAX_DAYS = 1e6

MAX_RETRY_AFTER_SECONDS = 1e9
MAX_CRAWL_DELAY_SECONDS = 1e7
"""Longer than anybody is waited for. Servers that crawlers ask say what they like: what is beyond
counts as so much."""

MOST_OPEN_REQUESTS = 1_000
"""Of one host: who bounds them means a few."""

MOST_GROUPS = 100
"""Of hosts, that have a limit: each is told to all schedulers."""

MAX_GROUP_LENGTH = 255

MAX_NAMED_GROUP_LENGTH = 64
"""Of a name that outcomes give a group: longer than any address."""

MAX_CLASS_LENGTH = 32

_VISIBLE = (r"[^\x00-\x20\x7f]", "neither spaces nor control characters")
"""PostgreSQL refuses some of them, and no host has any."""

Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL_LENGTH)]
Host = Annotated[str, text_of(300, *_VISIBLE)]
Source = Annotated[str, text_of(MAX_SOURCE_LENGTH, r"[^\x00-\x1f\x7f]", "no control characters")]
Group = Annotated[str, text_of(MAX_GROUP_LENGTH, *_VISIBLE)]
NamedGroup = Annotated[
    str, text_of(MAX_NAMED_GROUP_LENGTH, "[!-~]", "only visible ASCII characters, no spaces")
]
"""ASCII: it is kept as bytes."""

PageClass = Annotated[
    str, text_of(MAX_CLASS_LENGTH, "[a-z0-9._-]", "only a-z, 0-9, `.`, `_` and `-`")
]

UnixSeconds = Annotated[float, Meta(ge=0, le=MAX_UNIX_SECONDS)]
Rate = Annotated[float, Meta(ge=0, le=MAX_RATE)]
CrawlRate = Annotated[float, Meta(ge=0, le=MAX_CRAWL_RATE)]
NonNegative = Annotated[float, Meta(ge=0)]
Evidence = Annotated[float, Meta(ge=1e-150, le=1e150)]
"""The ratio of any two is a number too."""

Demand = Annotated[float, Meta(ge=0, le=1e12)]
"""Crawls per second that some pages ask for: more than all machines could make."""

SlotNumber = Annotated[float, Meta(ge=0, le=2**53)]
"""Counted exactly, with whatever fraction there is room for."""

Multiplier = Annotated[float, Meta(gt=0, le=1000)]
DirectoryCode = Annotated[int, Meta(ge=0, le=65_535)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
PageId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Shard = Annotated[int, Meta(ge=0, le=32767)]
Importance = Annotated[float, Meta(ge=0, le=MAX_IMPORTANCE)]
Days = Annotated[float, Meta(gt=0, le=MAX_DAYS)]

Reason = Literal["value", "new", "max-age", "retry", "urgent"]
Result = Literal[
    "changed",
    "unchanged",
    "not_modified",
    "gone",
    "redirected",
    "canonical",
    "disallowed",
    "failed",
]
