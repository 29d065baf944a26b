"""`POST /signals`: a JSON object a line, as the messages of `signals` are. Pure."""

from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from services.receiver.refusing import Refused
from services.receiver.texts import BYTE_ORDER_MARK
from shared.contracts.escapes import whole_characters
from shared.contracts.fields import UnixSeconds, Url
from shared.contracts.identity import BadUrl, identify
from shared.runtime.pings import Ping

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


def read_lines(body: bytes) -> Read:
    """Pings from lines; a bad one does not keep the others out.

    Raises:
        Refused: too many lines.
    """
    # Counted before they are taken apart: a line takes many times what it has bytes.
    if (ends := body.count(b"\n")) > MOST_LINES:
        raise Refused(413, f"{ends + 1} lines; at most {MOST_LINES} are taken")
    read = Read()
    for number, line in enumerate(body.removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            said = _LINE.decode(whole_characters(line))
            read.pings.append(Ping(said.url, identify(said.url).host, said.observed_at))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadUrl) as error:
            read.refuse(f"line {number}", str(error))
    return read
