"""From what went wrong to one clear line that says what to do."""

import asyncio
import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator

import click


class UserError(click.ClickException):
    """Something that the user can put right; one line, exit code 2."""

    exit_code = 2


class SystemFailed(click.ClickException):
    """The system failed, not its user; says where to look. Exit code 1."""

    exit_code = 1


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn the known faults of settings, broker, database and runs into one of the two above."""
    try:
        yield
    except click.exceptions.Exit:
        raise
    except click.ClickException:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _leave_out_what_has_no_room()
            where = f"{error.filename} cannot be written" if error.filename else "cannot write"
            raise SystemFailed(f"{where}: {error.strerror}") from error
        if _kinds(error) & _FAILURES:
            raise SystemFailed(str(error)) from error
        message = explanation(error)
        if message is None:
            raise
        raise UserError(message) from error


def _leave_out_what_has_no_room() -> None:
    """What waits to be written is not tried again when the process ends: that has a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def explanation(error: Exception) -> str | None:
    """One line about a known fault; None: unknown, show everything.

    Kinds are compared by name, so that a command that needs no broker and no database does not
    load their clients.
    """
    # SQLAlchemy wraps the driver's error.
    error = getattr(error, "orig", None) or error
    kinds = _kinds(error)
    if kinds & _SAY_IT_THEMSELVES:
        return str(error)
    for kind, explain in _EXPLANATIONS.items():
        if kind in kinds:
            return explain(error)
    return None


def _kinds(error: Exception) -> set[str]:
    """The error's classes: top package and name.

    Kinds are compared by name, so that a command that needs no broker and no database does not
    load their clients.
    """
    return {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""Of standard output, too, where that is a file."""

_FAILURES = {"services.RunFailed", "shared.SplitFailed", "deploy.StartError"}

_SAY_IT_THEMSELVES = {
    "shared.SettingsError",
    "shared.AccessRefused",
    "shared.TopicMismatch",
    "shared.StoreMismatch",
    "shared.StoreBusy",
    "shared.BadUrl",
    "shared.BadHost",
    "shared.NotKnown",
    "services.TraceError",
    "services.RunRefused",
    "services.PlanRefused",
    "deploy.ApacheKafkaUnavailableError",
}


def _broker_away(error: Exception) -> str:
    refused = _access_refused()
    if refused is not None:
        return refused
    return (
        f"the broker cannot be reached at {_broker()}: {error.args[0] if error.args else error}. "
        "Start it, or set KAFKA_BOOTSTRAP_SERVERS to where it is"
    )


def _access_refused() -> str | None:
    """Why the broker does not let us in; None: it is away."""
    from shared.runtime.access import AccessRefused, check_access  # noqa: PLC0415 - only in trouble
    from shared.runtime.kafka import client_options  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    async def check() -> None:
        settings = load_settings()
        await check_access(settings, client_options(settings))

    try:
        asyncio.run(check())
    except AccessRefused as refused:
        return str(refused)
    return None


_DATABASE_REFUSALS = {
    "password authentication failed": "see the user and the password in DATABASE_URL",
    "no password supplied": "DATABASE_URL has no password",
    "certificate": "see sslrootcert in DATABASE_URL, and that its host is one of the certificate",
    "SSL": "see sslmode in DATABASE_URL",
    "no pg_hba.conf entry": "see the user in DATABASE_URL, and sslmode",
    "closed the connection unexpectedly": "it may want TLS: see sslmode in DATABASE_URL",
}
"""What libpq says of a server that is there and does not let us in → what to look at."""


def _database_away(error: Exception) -> str:
    for part, advice in _DATABASE_REFUSALS.items():
        if part in str(error):
            return (
                f"the database at {_database()} does not let us in: {_first_line(error)}: {advice}"
            )
    if getattr(error, "sqlstate", None) is not None:
        # It is there, or was a moment ago, and says what it lacks: room, connections, time.
        return f"the database at {_database()} cannot do it now: {_first_line(error)}"
    return (
        f"the database cannot be reached at {_database()}: {_first_line(error)}. "
        f"Start it, or set {_setting()} to where it is"
    )


def _broker_silent(error: Exception) -> str:
    return (
        f"the broker at {_broker()} takes connections and does not answer "
        f"({error.args[0]}). It may hang, or still be starting; or something else listens there, "
        "or it speaks TLS: see KAFKA_BOOTSTRAP_SERVERS and FRESHET_KAFKA_SECURITY_PROTOCOL"
    )


def _database_stopped(error: Exception) -> str:
    return (
        f"the database takes connections and does not answer: {_first_line(error)}. It, its disk "
        "or its network may hang: see to the server, then call this again. What was being written "
        "may be there, or not"
    )


def _right_missing(error: Exception) -> str:
    from services.cli.missing_rights import advice  # noqa: PLC0415 - only in trouble

    return (
        f"the user of the database at {_database()} has not the right: {_first_line(error)}: "
        f"{advice(error)} (deploy/security.md), or name another user in {_setting()}"
    )


_EXPLANATIONS: dict[str, Callable[[Exception], str]] = {
    "services.BrokerSilentError": _broker_silent,
    "aiokafka.KafkaConnectionError": _broker_away,
    "aiokafka.NodeNotReadyError": _broker_away,
    "aiokafka.UnknownTopicOrPartitionError": lambda _error: (
        f"the broker at {_broker()} lacks a topic: run `freshet topics ensure`"
    ),
    "aiokafka.KafkaError": lambda error: f"the broker at {_broker()} refuses: {error}",
    "shared.ServerStopped": _database_stopped,
    "psycopg.OperationalError": _database_away,
    "psycopg.UndefinedTable": lambda error: (
        f"the database at {_database()} has no Freshet tables yet, or older ones "
        f"({_first_line(error)}): run `freshet migrate`"
    ),
    "psycopg.UndefinedColumn": lambda error: (
        f"the database at {_database()} is of another version ({_first_line(error)}): run "
        "`freshet migrate`, of the newest version that is in use"
    ),
    "psycopg.InsufficientPrivilege": _right_missing,
    "psycopg.Error": lambda error: f"the database at {_database()} refuses: {_first_line(error)}",
}
"""By kind of error, the special before the general."""


def _broker() -> str:
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - only in trouble

    return load_settings().kafka_bootstrap_servers


def _database() -> str:
    from shared.runtime.databases import databases_of  # noqa: PLC0415 - only in trouble
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    # The reason that follows says which of several it is.
    return " or ".join(without_password(one.url) for one in databases_of(load_settings()).each)


def _setting() -> str:
    """What says where the database is."""
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - only in trouble

    return "DATABASE_URL" if load_settings().databases is None else "FRESHET_DATABASES"


_PRIVATE_PARAMETERS = r"(?:(?:ssl)?password|oauth_client_secret|scram_(?:client|server)_key)"
"""Parameters of libpq, as far as 18."""

_SECRET_OPTION = re.compile(rf"([?&]{_PRIVATE_PARAMETERS}=)[^&]*", re.IGNORECASE)
_SECRET_WORD = re.compile(
    rf"((?:^|\s){_PRIVATE_PARAMETERS}\s*=\s*)('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)", re.IGNORECASE
)
"""Such a one in a URL and in its other form, `host=... password=...`."""


def without_password(url: str) -> str:
    """A database URL that may be shown."""
    scheme, is_url, _ = url.partition("://")
    if not is_url or not scheme.isalpha():
        return _SECRET_WORD.sub(r"\1***", url)
    url = _SECRET_OPTION.sub(r"\1***", url)
    head, separator, tail = url.rpartition("@")
    if not separator:
        return url
    user = head.partition("://")[2].split(":", 1)[0]
    return f"{scheme}://{user}@{tail}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]
