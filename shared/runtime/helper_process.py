"""A process of its own for what may take long, or too much memory: it ends itself then.

Python runs nothing else while a regular expression, or a loop of a library's, is at work; and only
a process gives its memory back. The helper's process is started by the first question, and again by
the first one after it has ended. When ours is gone it reads the end of its questions, and ends too.
"""

import asyncio
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

_LENGTH_BYTES: Final = 4


class NoHelper(Exception):
    """No process can be started, or none any more; the text says why."""


class HelperProcess:
    """Asks one question at a time; the others wait."""

    def __init__(self, module: str, *arguments: str) -> None:
        """Make it.

        Args:
            module: is run, and calls `answer_all`.
            arguments: of its command line.
        """
        self._command = [sys.executable, "-m", module, *arguments]
        # Not the loop's own threads, which others need meanwhile.
        self._turn = ThreadPoolExecutor(1, "helper")
        self._process: subprocess.Popen[bytes] | None = None

    async def ask(self, question: bytes) -> bytes | None:
        """The answer; None: it takes too long, or too much memory.

        Raises:
            NoHelper: nobody can be asked.
        """
        try:
            asked = asyncio.get_running_loop().run_in_executor(self._turn, self._ask, question)
        except RuntimeError as error:  # it was stopped, or there can be no more threads
            raise NoHelper(f"no process can be asked: {error}") from error
        return await asked

    def stop(self) -> None:
        """End the process; nothing is answered any more."""
        if self._process is not None:
            # Who waits for its answer reads the end instead.
            self._process.kill()
        self._turn.shutdown(wait=True, cancel_futures=True)
        self._end()

    def _ask(self, question: bytes) -> bytes | None:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            self._process = self._start()
        try:
            _send(self._process.stdin, question)
            answer = _receive(self._process.stdout)
        except (OSError, ValueError):
            answer = None
        if answer is None:
            self._end()
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - ourselves
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise NoHelper(f"no process can be started on this machine: {why}") from error

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()


def answer_all(
    answer: Callable[[bytes], bytes], seconds: int, memory_bytes: int, idle_seconds: int = 0
) -> None:
    """Answer questions until there are no more: the helper's side.

    Args:
        answer: to a question.
        seconds: that one may take.
        memory_bytes: address space of the process, what it imports included.
        idle_seconds: without a question for so long, it ends; 0: never.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    source, target = open(0, "rb", 0), open(1, "wb", 0)  # noqa: SIM115 - to the end
    # Python itself would not hear it in the middle of a regular expression.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(idle_seconds)
    while (question := _receive(source)) is not None:
        signal.alarm(seconds)
        _send(target, answer(question))
        signal.alarm(idle_seconds)


def _send(pipe: IO[bytes] | None, message: bytes) -> None:
    if pipe is None:
        raise OSError("there is no pipe")
    left = memoryview(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    while left:
        left = left[pipe.write(left) :]


def _receive(pipe: IO[bytes] | None) -> bytes | None:
    """A message; None: nobody sends any more."""
    length = _exactly(pipe, _LENGTH_BYTES)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "big"))


def _exactly(pipe: IO[bytes] | None, count: int) -> bytes | None:
    got = bytearray()
    while pipe is not None and len(got) < count:
        part = pipe.read(count - len(got))
        if not part:
            return None
        got += part
    return bytes(got)
