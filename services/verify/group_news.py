"""Which groups hosts are of by what was announced, and from when on everybody knows of it."""

from collections.abc import Collection

from services.verify.checks.downtime import Downtimes
from services.verify.ledger import Ledger
from services.verify.records import decoded
from shared.contracts.messages import HostParameters
from shared.contracts.topics import HOST_PARAMETERS


def named_since(
    ledger: Ledger, addresses: Collection[str], downtimes: Downtimes, seconds: float
) -> dict[str, tuple[str, float]]:
    """The groups that hosts are of, and from when on every scheduler must know of it.

    Args:
        ledger: of the run.
        addresses: hosts of which crawlers name one, always the same.
        downtimes: in which the news may not come.
        seconds: that it may take, once there was no downtime.
    """
    found: dict[str, tuple[str, float]] = {}
    for _, message in decoded(HostParameters, ledger.raw[HOST_PARAMETERS.name]):
        if message.host in addresses and message.group is not None:
            since = message.updated_at + seconds
            for begin, end in sorted(downtimes):
                if begin <= since:
                    since = max(since, end + seconds)
            found.setdefault(message.host, (message.group, since))
    return found
