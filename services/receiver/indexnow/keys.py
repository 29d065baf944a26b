"""Which keys are whose: key files, fetched once, remembered, and looked at again.

What is known here is a copy of what stands on the hosts: a receiver that starts anew asks them
again, and nothing is lost.
"""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import structlog
from yarl import URL

from services.receiver import metrics
from services.receiver.indexnow.submission import KeyFile
from services.receiver.rates import Rates
from services.receiver.refusing import Refused, too_fast
from shared.runtime.fetching import Fetched, Fetcher, FetchFailed, NotFollowed

log = structlog.get_logger(__name__)

KEY_FILE_BYTES: Final = 1024
"""A key has 128 characters at most."""

INVALID_SECONDS: Final = 60.0
"""A key that is not confirmed is looked for again after so long: its file may be on its way."""

MOST_KEYS: Final = 100_000
"""About 40 MB: strangers make up as many as they like, and files with long addresses."""

MOST_CHECKS: Final = 64
"""Key files that are fetched at a time, each over a connection of its own: one that waited for
others would be given up before it is asked for. Their names have four threads for each
(`shared.runtime.name_threads`), which servers of names that never answer keep for longer."""

KEPT_FOR_OTHERS: Final = 32
"""Of those, for visitors who have none: a few whose hosts are slow do not keep all others out."""

CHECKS_OF_VISITOR: Final = 16
"""Of those, by one visitor, whose hosts may be as slow as they like."""

CHECKS_OF_VISITOR_PER_SECOND: Final = 20.0
"""The same, of hosts that answer at once: names and ports without end may all be one machine's.
Two hundred at once, as whoever publishes for many hosts has; then this."""

CHECKS_OF_HOST_PER_SECOND: Final = 0.5
"""Made-up keys must not make a flood of requests at somebody's host: five at once, then this."""

CONNECTIONS_TO_HOST: Final = 16
"""As many as one host's keys are let in until the first of them are given up: who names files that
it never sends keeps no other of its keys waiting."""

SHARE_OF_VISITOR: Final = 0.8
"""Of those at one host, by one visitor: a host may have a few keys, for its folders; and who makes
keys up leaves some questions to the host's own people."""

_BYTE_ORDER_MARK: Final = "\ufeff"


class Verdict(Enum):
    """What is known of a key."""

    VALID = "valid"
    INVALID = "invalid"
    UNREACHABLE = "unreachable"
    """Its file cannot be fetched now."""
    PENDING = "pending"
    """It is being fetched."""


@dataclass(frozen=True, slots=True)
class _Known:
    verdict: Verdict
    again_at: float
    """When the file is looked at again."""


def key_fetcher(**options: Any) -> Fetcher:
    """What fetches key files: all that are let in at once. The options are a fetcher's."""
    return Fetcher(connections=MOST_CHECKS, connections_to_host=CONNECTIONS_TO_HOST, **options)


class KeyBook:
    """Verdicts on keys. Times are wall seconds."""

    def __init__(
        self,
        fetcher: Fetcher,
        recheck_seconds: float,
        wait_seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make it.

        Args:
            fetcher: as `key_fetcher` makes it, started before the first question.
            recheck_seconds: a valid key's file is looked at again after so long.
            wait_seconds: how long a question waits for a file that is being fetched.
            now: wall seconds.
        """
        self._fetcher = fetcher
        self._recheck_seconds = recheck_seconds
        self._wait_seconds = wait_seconds
        self._now = now
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        """By `_name_of` the file."""
        self._checks: dict[KeyFile, asyncio.Task[Verdict]] = {}
        self._of_visitor: Counter[str] = Counter()
        self._visitors = Rates(CHECKS_OF_VISITOR_PER_SECOND)
        self._rates = Rates(CHECKS_OF_HOST_PER_SECOND)
        self._shares = Rates(SHARE_OF_VISITOR * CHECKS_OF_HOST_PER_SECOND)

    async def verdict(self, file: KeyFile, visitor: str) -> Verdict:
        """What is known of a key, after a short wait if need be.

        Args:
            file: of the key.
            visitor: who asks.

        Raises:
            Refused: too many keys are being looked for.
        """
        name = _name_of(file)
        known = self._known.get(name)
        if known is not None:
            self._known.move_to_end(name)
            due = self._now() >= known.again_at
            if due and known.verdict is Verdict.VALID:
                self._look_again(file, visitor)
            if not due or known.verdict is Verdict.VALID:
                return known.verdict
        check = self._check(file, visitor)
        done, _ = await asyncio.wait([check], timeout=self._wait_seconds)
        return check.result() if done else Verdict.PENDING

    async def stop(self) -> None:
        """Give up what is being fetched."""
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    def _look_again(self, file: KeyFile, visitor: str) -> None:
        """Begin to; while the file is being fetched, what was known holds."""
        try:
            self._check(file, visitor)
        except Refused as refused:
            log.debug("a key is looked at later", host=file.host, reason=str(refused))

    def _check(self, file: KeyFile, visitor: str) -> asyncio.Task[Verdict]:
        if (check := self._checks.get(file)) is not None:
            return check
        if len(self._checks) >= MOST_CHECKS:
            raise too_fast("keys are being looked for at many hosts already", 1.0)
        is_crowded = len(self._checks) >= MOST_CHECKS - KEPT_FOR_OTHERS
        if self._of_visitor[visitor] >= (1 if is_crowded else CHECKS_OF_VISITOR):
            raise too_fast("keys of yours are being looked for at many hosts already", 1.0)
        now, shared = self._now(), f"{visitor} {file.host}"
        if wait := self._visitors.wait_for(visitor, 1, now):
            raise too_fast("keys of yours that nobody knows yet", wait)
        wait = self._shares.wait_for(shared, 1, now) or self._rates.wait_for(file.host, 1, now)
        if wait:
            raise too_fast(f"keys that nobody knows yet, for {file.host}", wait)
        check = self._checks[file] = asyncio.ensure_future(self._fetched(file))
        self._of_visitor[visitor] += 1
        check.add_done_callback(lambda _: self._checked(file, visitor))
        return check

    def _checked(self, file: KeyFile, visitor: str) -> None:
        self._checks.pop(file)
        self._of_visitor[visitor] -= 1
        if not self._of_visitor[visitor]:
            del self._of_visitor[visitor]

    async def _fetched(self, file: KeyFile) -> Verdict:
        name = _name_of(file)
        verdict, before = await self._ask(file), self._known.get(name)
        metrics.KEY_CHECKS.labels(verdict.value).inc()
        seconds = self._recheck_seconds if verdict is Verdict.VALID else INVALID_SECONDS
        if verdict is Verdict.UNREACHABLE and before is not None:
            # A host that is away for a while has not taken its key back.
            verdict = before.verdict
        self._known[name] = _Known(verdict, self._now() + seconds)
        self._known.move_to_end(name)
        if len(self._known) > MOST_KEYS:
            self._known.popitem(last=False)
        return verdict

    async def _ask(self, file: KeyFile) -> Verdict:
        for url in file.urls:
            try:
                # A byte more than a file may have, by which a longer one shows.
                answer = await self._fetcher.get(
                    url, max_bytes=KEY_FILE_BYTES + 1, may_follow=is_same_file, cut=True
                )
            except NotFollowed:
                # As many sites answer for whatever is not there.
                return Verdict.INVALID
            except FetchFailed as failure:
                reason = str(failure)
            else:
                if not answer.says_nothing:
                    return Verdict.VALID if _holds(answer, file.key) else Verdict.INVALID
                reason = f"it answers {answer.status}"
            log.info("a key file cannot be fetched", host=file.host, reason=reason)
        return Verdict.UNREACHABLE


def is_same_file(url: str, target: str) -> bool:
    """Whether a redirect leads to the same path of the same host, on http or https.

    Any other may be one that leads wherever a visitor likes, as many sites have: it proves nothing.
    """
    before, after = URL(url), URL(target)
    return (
        after.scheme in ("http", "https")
        and (before.host, before.raw_path_qs) == (after.host, after.raw_path_qs)
        and (before.port == after.port or (before.is_default_port() and after.is_default_port()))
    )


def _name_of(file: KeyFile) -> bytes:
    """What stands for a file in memory, of which it takes a hundredth. Nobody makes two alike."""
    text = "\n".join((file.host, file.key, file.folder, *file.urls))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _holds(answer: Fetched, key: str) -> bool:
    if answer.status != 200 or len(answer.body) > KEY_FILE_BYTES:
        return False
    return answer.body.decode("utf-8", "replace").removeprefix(_BYTE_ORDER_MARK).strip() == key
