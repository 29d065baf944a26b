"""`POST /signals`: a JSON object a line, as the messages of `signals` are. Pure."""

from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from services.receiver.refusing import Refused
from services.receiver.texts import BYTE_ORDER_MARK
from shared.contracts.codec import BadMessage, why_not_read
from shared.contracts.escapes import whole_characters
from shared.contracts.fields import UnixSeconds, Url
from shared.contracts.identity import BadUrl, identify
from shared.runtime.pings import Ping
from shared.runtime.signal_bounds import SignalBounds

MOST_LINES: Final = 10_000
MOST_REASONS: Final = 20
"""Lines whose faults are told, one by one."""


class _Line(Struct):
    url: Url
    observed_at: UnixSeconds | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class Read:
    """What was found."""

    pings: list[Ping] = field(default_factory=list)
    refused: int = 0
    reasons: list[str] = field(default_factory=list)

    def refuse(self, what: str, reason: str) -> None:
        """Note what cannot be taken."""
        self.refused += 1
        if len(self.reasons) < MOST_REASONS:
            self.reasons.append(f"{what}: {reason}")

    def answer(self) -> dict[str, object]:
        """For whoever sent it."""
        return {"accepted": len(self.pings), "refused": self.refused, "reasons": self.reasons}


def checked_ping(url: str, observed_at: float | None, bounds: SignalBounds, now: float) -> Ping:
    """A ping that the ingester takes, as far as can be told before it is there.

    Raises:
        BadUrl: no URL of a page, or on a host that is not taken.
        BadMessage: its time is not taken.
    """
    page = identify(url)
    bounds.check_host(page.host)
    if observed_at is not None:
        bounds.check_time(observed_at, now)
    return Ping(page.url, page.host, observed_at)


def read_lines(body: bytes, bounds: SignalBounds, now: float) -> Read:
    """Pings from lines; a bad one does not keep the others out.

    Args:
        body: of the request.
        bounds: of times and hosts.
        now: Unix seconds.

    Raises:
        Refused: too many lines.
    """
    # Counted before they are taken apart: a line takes many times what it has bytes.
    count = body.count(b"\n") + (not body.endswith(b"\n"))
    if count > MOST_LINES:
        raise Refused(413, f"{count} lines; at most {MOST_LINES} are taken")
    read = Read()
    for number, line in enumerate(body.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            said = _LINE.decode(whole_characters(line))
            read.pings.append(checked_ping(said.url, said.observed_at, bounds, now))
        except (BadMessage, BadUrl) as error:
            read.refuse(f"line {number}", str(error))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            read.refuse(f"line {number}", why_not_read(error))
    return read
