"""What settings may be, where several are of a kind, or one takes many lines."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_settings import SettingsError as NotJson

from shared.contracts.fields import MAX_CRAWL_RATE, MAX_SOURCE_LENGTH
from shared.runtime.host_patterns import host_pattern
from shared.runtime.page_class_terms import ClassName
from shared.units import SECONDS_PER_DAY

ENV_PREFIX: Final = "FRESHET_"
"""Of the variables of the environment that are settings."""


def unprefixed(name: str) -> Any:
    """A setting that is known by a name without the prefix, too."""
    return Field(validation_alias=AliasChoices(name, f"{ENV_PREFIX}{name}", name.lower()))


def unreadable(error: Exception, file: Path) -> str:
    """Why the settings could not be read at all, from the environment or their file."""
    if isinstance(error, NotJson):
        # It says the setting's name in quotes, and not the value, which may be a secret.
        name = str(error).partition('"')[2].partition('"')[0]
        return f"{name}: its value in the environment is not JSON"
    if isinstance(error, RecursionError):
        return f"a value in the environment, or in {file}, has too many brackets within one another"
    return f"{file} cannot be read as TOML: {error}"


def named_faults(error: ValidationError) -> str:
    """What is wrong of which settings, a line each."""
    lines = [
        f"  {'.'.join(str(part) for part in item['loc']) or 'settings'}: "
        + item["msg"].removeprefix("Value error, ")
        for item in error.errors()
    ]
    return "\n".join(["these settings are wrong:", *lines])


def _file_path(given: object) -> object:
    if given == "":  # as a path, the folder one is in
        raise ValueError("it is empty: name a file, or leave the setting out")
    return given


FilePath = Annotated[Path, BeforeValidator(_file_path)]

_BROKER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
_DEFAULT_PORT: Final = 9092


def broker_addresses(given: str) -> str:
    """Addresses of brokers, each with its port.

    Raises:
        ValueError: says which is none.
    """
    found: list[str] = []
    for part in given.split(","):
        address = part.strip()
        if not address and found:
            continue  # There is a comma too many.
        match = _BROKER.fullmatch(address)
        port = int(match[2] or _DEFAULT_PORT) if match is not None else 0
        if match is None or not 1 <= port <= 65_535:
            raise ValueError(f"{address!r} is not the address of a broker, such as kafka:9092")
        found.append(f"{match[1]}:{port}")
    return ",".join(found)


Brokers = Annotated[str, AfterValidator(broker_addresses)]


def web_url(given: str) -> str:
    """An address on the web, or nothing.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(given)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_one = False
    if given and not is_one:
        raise ValueError(f"{given!r} is no address such as https://example.com")
    return given


def web_urls(given: str) -> str:
    """Several, with spaces between them.

    Raises:
        ValueError: says which is none.
    """
    return " ".join(web_url(part) for part in given.split())


WebUrl = Annotated[str, AfterValidator(web_url)]
WebUrls = Annotated[str, AfterValidator(web_urls)]


def network(given: str) -> str:
    """Addresses of a network, as `10.0.0.0/8`; one address is a network of its own.

    Raises:
        ValueError: says which is none, and which may be meant.
    """
    try:
        place = ipaddress.ip_network(given.strip(), strict=False)
    except ValueError as error:
        raise ValueError(
            f"{given!r} is neither an address nor a network, such as 10.0.0.1 or 10.0.0.0/8"
        ) from error
    written = given.strip().partition("/")[0]
    if ipaddress.ip_address(written) != place.network_address:
        raise ValueError(f"{given!r} is an address within a network: write {written} or {place}")
    mapped = place.network_address.ipv4_mapped if place.version == 6 else None
    if mapped is not None and place.prefixlen >= 96:
        place = ipaddress.ip_network((mapped, place.prefixlen - 96))
    return str(place)


Networks = Annotated[
    tuple[Annotated[str, AfterValidator(network)], ...],
    Field(max_length=1000),
]

_MOST: Final = 1e12
"""A larger number is a mistake; in whole milliseconds, no protocol could say it."""

Positive = Annotated[float, Field(gt=0, le=_MOST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)]

SessionSeconds = Annotated[float, Field(ge=0.1, le=SECONDS_PER_DAY)]
"""Whole milliseconds, in 32 bits."""

RequestSeconds = Annotated[float, Field(gt=0, le=SECONDS_PER_DAY)]
"""As long as `crawl-requests` are kept: a scheduler that starts reads there what is in flight."""

StallSeconds = Annotated[float, Field(ge=2, le=_MOST)]
"""A worker that has nothing to do shows a sign of life once in a second."""

TopicPrefix = Annotated[str, Field(max_length=200, pattern=r"^[a-zA-Z0-9._-]*$")]
"""What names of topics may have, with room for the longest."""

SourceName = Annotated[
    str, Field(min_length=1, max_length=MAX_SOURCE_LENGTH, pattern=r"^[^\x00-\x1f\x7f]*$")
]
"""As messages may have it: signals under another name would all be refused."""


def _secret(given: SecretStr) -> SecretStr:
    text = given.get_secret_value()
    if not text:
        raise ValueError("it is empty, and anybody could show it: give it a text, or leave it out")
    if not text.isprintable() or " " in text:
        raise ValueError("it has a space, a line break or a control character: leave those out")
    return given


Secret = Annotated[SecretStr, AfterValidator(_secret)]
"""What a sender shows to be known by, in a header."""

CrawlRate = Annotated[float, Field(gt=0, le=MAX_CRAWL_RATE)]
"""What messages can say: one that no scheduler could read would stop all crawling."""

InstanceName = Annotated[str, Field(min_length=1, max_length=200)]
"""As long as messages may have it."""

UrlPattern = Annotated[str, Field(min_length=1, max_length=1000)]
UrlPatterns = Annotated[tuple[UrlPattern, ...], Field(max_length=1000)]

HostPatternNames = Annotated[
    tuple[Annotated[str, AfterValidator(host_pattern)], ...],
    Field(min_length=1, max_length=10_000),
]

ImportanceByUrl = Annotated[
    dict[UrlPattern, Annotated[float, Field(ge=0.0, le=1e12)]], Field(max_length=1000)
]
ClassByUrl = Annotated[dict[UrlPattern, ClassName], Field(max_length=1000)]
