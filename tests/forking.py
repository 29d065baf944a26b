"""Workers that begin loaded: forked from a process that has loaded what they load.

To load its libraries, and its kernels from the cache, takes a worker 1 to 1.6 s of a core, more
than most tests of it take otherwise. Here it is done once for each kind of worker in a run of
the tests, however many processes run them: a process, started as a worker is, loads what all of
them share; of it one is forked for each kind, which loads the rest; and of that, one for each
process of tests, which forks the workers and knows how they ended. A worker has an environment, a
folder, signals and an exit of its own, and runs `freshet worker NAME` from its first line to its
last; it finds its modules loaded, and none of another kind. No thread of ours runs, and no file is
open, where a fork is made.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARED = ("services.cli.commands.worker", "shared.runtime.publisher", "shared.runtime.worker")
"""What all kinds load: nothing that one of them does not."""

_MESSAGE_BYTES = 1 << 17
_TRIES = 1000
_WELCOME = b"welcome"

_CODE = """
import sys
sys.path.insert(0, {folder!r})
from forking import root
name = root({number})
sys.path.remove({folder!r})
from services.cli.main import main
main(["worker", name])
"""
"""What follows `root` is run by workers alone: nobody else comes back from it."""


def _ready_scheduler() -> None:
    from services.scheduler.warm_up import warm_up

    warm_up()


def _ready_estimator() -> None:
    from services.estimator.compilation import warm_up

    warm_up()


_READY: dict[str, Callable[[], None]] = {
    "scheduler": _ready_scheduler,
    "estimator": _ready_estimator,
}
"""Kinds with kernels, and what loads those."""


def root(number: int) -> str:
    """Fork a process for each kind that is asked for; returns in workers only, with their kind.

    It ends when all who came have gone.

    Args:
        number: of the socket to which processes of tests come. They ask for kinds, each with the
            socket for its workers.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the tests, who then close the socket
    door = socket.socket(fileno=number)
    gc.disable()
    _load(SHARED)
    guests, kinds = [_let_in(door)], dict[str, socket.socket]()
    while guests:
        for asked in select.select([door, *guests], [], [])[0]:
            if asked is door:
                guests.append(_let_in(door))
                continue
            name, of_workers = _question(asked)
            if of_workers is None:
                guests.remove(asked)
                asked.close()
                continue
            if name not in kinds:
                kinds[name], theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                if os.fork() == 0:
                    for one in (door, *guests, *kinds.values(), of_workers):
                        one.close()
                    return _kind(name, theirs)
                theirs.close()
            socket.send_fds(kinds[name], [name.encode()], [of_workers.fileno()])
            of_workers.close()
    os._exit(0)


def _let_in(door: socket.socket) -> socket.socket:
    guest, _ = door.accept()
    with contextlib.suppress(OSError):  # gone again
        guest.send(_WELCOME)
    return guest


def _question(asked: socket.socket) -> tuple[str, socket.socket | None]:
    """For which kind a socket came; None: whoever asks has gone."""
    try:
        message, numbers, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 1)
    except ConnectionResetError:
        return "", None
    return message.decode(), socket.socket(fileno=numbers[0]) if message else None


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.freeze()


def _kind(name: str, asked: socket.socket) -> str:
    """Load what a kind loads, and fork a process for each socket; returns in workers only."""
    _load((f"services.{name}.worker",))
    if name in _READY:
        _READY[name]()
        gc.freeze()
    while True:
        _, of_workers = _question(asked)
        if of_workers is None:
            os._exit(0)
        if os.fork() == 0:
            asked.close()
            return _workers_of(name, of_workers)
        of_workers.close()


def _workers_of(name: str, asked: socket.socket) -> str:
    """Fork the workers of a kind, and say how they ended; returns in workers only."""
    while True:
        message = asked.recv(_MESSAGE_BYTES)
        if not message:
            os._exit(0)
        wanted = json.loads(message)
        if "pid" in wanted:
            pid, status = os.waitpid(wanted["pid"], os.WNOHANG)
            asked.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        pid = os.fork()
        if pid == 0:
            asked.close()
            _become(wanted)
            return name
        asked.send(json.dumps(pid).encode())


def _become(wanted: dict[str, Any]) -> None:
    """Be in the place that a process of one's own would be started in."""
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["folder"])
    log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


class ForkedProcess:
    """A worker that was forked, with what is used of `subprocess.Popen`."""

    def __init__(self, kind: "_Kind", pid: int) -> None:
        self.pid = pid
        self._kind = kind
        self._ended = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None: it runs."""
        if self._code is None and self._ended >= 0:
            self._code = self._kind.ask({"pid": self.pid})
            if self._code is not None:
                os.close(self._ended)
                self._ended = -1
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not after so many seconds.
        """
        if self._code is None:
            ended = select.poll()
            ended.register(self._ended, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a worker that was forked", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a crash would."""
        self.send_signal(signal.SIGKILL)


class _Kind:
    """Where the workers of a kind are forked."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours
        self._turn = threading.Lock()

    def ask(self, wanted: dict[str, Any]) -> Any:
        """One question, one answer."""
        with self._turn:
            self._ours.send(json.dumps(wanted).encode())
            answer = self._ours.recv(_MESSAGE_BYTES)
        if not answer:
            raise RuntimeError("the process that forks workers has ended")
        return json.loads(answer)

    def close(self) -> None:
        """Fork no more."""
        self._ours.close()


_kinds: dict[str, _Kind] = {}
_roots: list[socket.socket] = []
"""The way to the root, when it is needed."""


@atexit.register
def _end() -> None:
    """Without their sockets they end, and leave the workers alone."""
    for kind in _kinds.values():
        kind.close()
    for ours in _roots:
        ours.close()


def forked(name: str, environment: dict[str, str], log: Path) -> ForkedProcess:
    """A worker of a kind, as if it had been started here.

    Args:
        name: its kind.
        environment: all of it.
        log: what it writes is appended to this file.
    """
    if name not in _kinds:
        _kinds[name] = _kind_of(name)
    log.touch()  # it is there when this returns
    wanted = {"environment": environment, "folder": str(Path.cwd()), "log": str(log.absolute())}
    return ForkedProcess(_kinds[name], _kinds[name].ask(wanted))


def _kind_of(name: str) -> _Kind:
    if not _roots:
        _roots.append(_way_to_root())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(_roots[0], [name.encode()], [theirs.fileno()])
    return _Kind(ours)


def _way_to_root() -> socket.socket:
    """To the one of this run of the tests; started, where nobody has done so or all had gone."""
    # A name without a file: it is free again when the root has ended, however it ended.
    address = f"\0freshet-forking-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    for _ in range(_TRIES):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            try:
                door.bind(address)
            except OSError:  # somebody has it
                pass
            else:
                door.listen()
                _start_root(door)
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # It may not listen yet, or end just now, as all others have gone.
        with contextlib.suppress(ConnectionError):
            ours.connect(address)
            if ours.recv(len(_WELCOME)):
                return ours
        ours.close()
        time.sleep(0.01)
    raise RuntimeError("there is no process that forks workers, and none can be started")


def _start_root(door: socket.socket) -> None:
    code = _CODE.format(folder=str(Path(__file__).parent), number=door.fileno())
    # A process of its own: others may need it for longer than this one is there.
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=[door.fileno()]
    )
    process.returncode = 0  # nobody waits for it
