"""The views over HTTP: their pages, and JSON that is asked for one at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import faust
import msgspec
import structlog
from aiohttp.web import Request, Response

from services.coordinator.picture import HEADERS
from services.coordinator.views.questions import ANSWER_SECONDS, Answer, Question
from shared.contracts.fields import MAX_URL_LENGTH
from shared.runtime.helper_process import HelperProcess, NoHelper

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 4
"""Questions of a kind that wait or are being answered; more are told to come again."""

PATIENCE_SECONDS: Final = ANSWER_SECONDS + 10.0
"""Who asks waits no longer; a first question waits for the process to start."""

_ANSWERING: Final = "services.coordinator.views.answering"
_TAKES_LONG: Final = f"it takes more than {ANSWER_SECONDS} s, or too much memory"
_COME_AGAIN: Final = "others ask, or it takes long: ask again in a moment"


class Asking:
    """Two processes: one for what is quick, one for calibration, which need not wait."""

    def __init__(self) -> None:
        """Make it; each process starts when somebody looks."""
        self._quick = HelperProcess(_ANSWERING)
        self._slow = HelperProcess(_ANSWERING)
        self._waiting = {self._quick: 0, self._slow: 0}
        self._asked: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Answer:
        """The answer, within `PATIENCE_SECONDS`."""
        helper = self._slow if question.view == "calibration" else self._quick
        if self._waiting[helper] >= MOST_WAITING:
            return _refused(503, _COME_AGAIN)
        self._waiting[helper] += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        # Whoever waits may go away; the process is busy all the same.
        task = asyncio.create_task(self._answer(helper, question, answer))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        try:
            return await asyncio.wait_for(answer, PATIENCE_SECONDS)
        except TimeoutError:
            return _refused(503, _COME_AGAIN)

    def stop(self) -> None:
        """End both processes."""
        self._quick.stop()
        self._slow.stop()

    async def _answer(
        self, helper: HelperProcess, question: Question, answer: "asyncio.Future[Answer]"
    ) -> None:
        try:
            said = await helper.ask(msgspec.msgpack.encode(question))
            found = _refused(503, _TAKES_LONG) if said is None else _read(said)
        except NoHelper as error:
            found = _refused(503, str(error), str(error))
        finally:
            self._waiting[helper] -= 1
        if found.trouble:
            log.warning("a view has no answer", view=question.view, error=found.trouble)
        if not answer.done():
            answer.set_result(found)


def _read(said: bytes) -> Answer:
    return msgspec.msgpack.decode(said, type=Answer)


def _refused(status: int, text: str, trouble: str = "") -> Answer:
    return Answer(status, msgspec.json.encode({"error": text}), trouble)


def add_views(app: faust.App, ask: Callable[[Question], Awaitable[Answer]]) -> None:
    """Serve what the pages of the views ask for, from the worker's HTTP server."""

    def serve(path: str, question: Callable[[Request], Question]) -> None:
        @app.page(path, name=f"view:{path}")  # type: ignore[untyped-decorator]
        async def view(_web: Any, request: Request) -> Response:
            answer = await _asked(request, question(request), ask)
            return Response(
                status=answer.status,
                body=answer.body,
                content_type="application/json",
                headers=HEADERS,
            )

    serve("/page.json", lambda request: Question("page", request.query.get("url", "")))
    serve("/hosts.json", _of_hosts)
    serve("/sources.json", lambda _request: Question("sources"))
    serve("/calibration.json", _of_calibration)


def _of_hosts(request: Request) -> Question:
    host = request.query.get("host", "")
    return Question("host", host) if host else Question("hosts")


def _of_calibration(request: Request) -> Question:
    return Question("calibration", request.query.get("days", ""))


async def _asked(
    request: Request, question: Question, ask: Callable[[Question], Awaitable[Answer]]
) -> Answer:
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        # A stranger's page in an operator's browser is not to keep the database busy.
        return _refused(403, "other sites may not ask")
    if len(question.about) > MAX_URL_LENGTH:
        return _refused(400, f"it has more than {MAX_URL_LENGTH} characters")
    if not question.about.isprintable():
        return _refused(400, "it has control or unprintable characters")
    return await ask(question)
