"""Child processes that never outlive their parent, nor hold its pipes."""

import contextlib
import ctypes
import os
import pwd
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_POLL_SECONDS = 0.02
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST_PORT: Final = 12_000
_MOST_PORT: Final = 32_768
_MOST_TRIES: Final = 100
_MOST_HELD: Final = 200
_HELD: Final[deque[int]] = deque()
"""Files of the sockets that hold ports, the oldest first."""


class StartError(RuntimeError):
    """A server did not come up; the message has the end of its log."""


def spawn(
    argv: Sequence[str],
    log_path: Path,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    death_signal: int = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a process with its output in `log_path` and a process group of its own.

    On Linux it gets `death_signal` when the thread that called this ends, however it ends; call it
    from a thread that lives as long as the child should. `user` is the account to run as, which
    takes root. Raises OSError if the program cannot be started.
    """
    parent = os.getpid()

    def bind_to_parent() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal)
            if os.getppid() != parent:  # the parent died before the line above
                os.kill(os.getpid(), death_signal)

    account = pwd.getpwnam(user) if user else None
    with log_path.open("ab") as log_file:
        return subprocess.Popen(  # noqa: S603
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            start_new_session=True,
            preexec_fn=bind_to_parent,  # noqa: PLW1509
        )


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a spawned process and to its own children; one that is gone is no error."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def stop_process(
    process: subprocess.Popen[bytes], number: int = signal.SIGTERM, grace_seconds: float = 4.0
) -> None:
    """Ask a process to end, kill it and its children after the grace, and wait for it."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    signal_group(process, signal.SIGKILL)
    process.wait()


def wait_ready(
    name: str,
    process: subprocess.Popen[bytes],
    ready: Callable[[], bool],
    log_path: Path,
    timeout_seconds: float,
) -> None:
    """Wait until `ready()` is true; raises StartError if the process dies or the time is up."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        code = process.poll()
        late = time.monotonic() > deadline
        if code is not None or late:
            why = f"is not ready after {timeout_seconds:.0f} s" if late else f"ended with {code}"
            stop_process(process)
            raise StartError(f"{name} {why}; the end of {log_path}:\n{last_lines(log_path)}")
        time.sleep(_POLL_SECONDS)


def accepts_connections(host: str, port: int) -> bool:
    """Whether something listens on a TCP port."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that nothing listens on now, and that no connection is given by itself.

    A server may take a while to bind it, and may be away for a while: of the ports that the system
    hands to outgoing connections, one could be another's by then. Nor does anybody who asks here
    get it meanwhile, in whatever process: it is held, as the UDP port of its number, which is in no
    server's way, for as long as this process lives or has asked for few others since.
    """
    chosen = random.SystemRandom()
    for _ in range(_MOST_TRIES):
        port = chosen.choice(_ports_of_servers())
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            _hold(host, port)
            return port
    raise StartError(f"no free port was found in {_MOST_TRIES} tries")


def _hold(host: str, port: int) -> None:
    """Let nobody else have a port from here.

    Raises:
        OSError: somebody has it.
    """
    with socket.socket(type=socket.SOCK_DGRAM) as holding:
        holding.bind((host, port))
        _HELD.append(holding.detach())
    if len(_HELD) > _MOST_HELD:
        os.close(_HELD.popleft())


def _ports_of_servers() -> range:
    """Those below what outgoing connections get, of which the lowest have names of their own."""
    try:
        lowest = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = _MOST_PORT
    return range(_LEAST_PORT, max(lowest, 2 * _LEAST_PORT))


def last_lines(path: Path, count: int = 20) -> str:
    """Return the last lines of a log file; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return ""
