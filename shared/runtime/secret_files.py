"""Secrets from files, as Docker, Kubernetes and Vault mount them.

Every setting that holds a secret may be given by a file: `FRESHET_KAFKA_SASL_PASSWORD_FILE` and
`DATABASE_URL_FILE` name the files whose content is the value. So no secret stands in a process's
environment, which others on its machine, and whatever reports its crashes, may see.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo

SUFFIX: Final = "_FILE"

BESIDE_SECRETS: Final = frozenset({"kafka_sasl_username", "poller_streams"})
"""Settings that are none by their types: a user is in one secret with the password, and the address
of a stream may have a password in it."""

MOST_BYTES: Final = 65_536
"""A larger file holds no secret: it is another file, named by mistake."""


class SecretFileError(Exception):
    """A secret cannot be taken from its file; the text says which, and never what is in it."""


def variables(prefix: str, fields: Mapping[str, FieldInfo]) -> dict[str, str]:
    """The environment variables that may name a file → the setting whose value it holds.

    Args:
        prefix: of settings without an alias of their own.
        fields: all settings; those of secrets are found by their types, but for a few.
    """
    return {
        f"{name}{SUFFIX}": setting
        for setting, field in fields.items()
        if setting in BESIDE_SECRETS or _holds_secret(field.annotation)
        for name in plain_variables(prefix, setting, field)
    }


def plain_variables(prefix: str, setting: str, field: FieldInfo) -> list[str]:
    """The environment variables that give a setting itself."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices if str(choice).isupper()]
    return [f"{prefix}{setting.upper()}"]


def read_secrets(prefix: str, fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Setting → value, of the secrets that the environment gives by files and not by themselves.

    Raises:
        SecretFileError: a file cannot be read, or two of them give one secret.
    """
    found: dict[str, Any] = {}
    for variable, setting in variables(prefix, fields).items():
        path = os.environ.get(variable)
        if not path:
            continue
        # An empty one is none, as a template leaves it: it does not go before a file.
        if any(os.environ.get(name) for name in plain_variables(prefix, setting, fields[setting])):
            continue
        if setting in found:
            raise SecretFileError(f"{variable} and another variable give {setting}: unset one")
        text = _read(variable, Path(path))
        plain = _is_plain(fields[setting].annotation)
        found[setting] = text if plain else _decoded(variable, text)
    return found


@contextmanager
def lent_to_environment(names: Iterable[str]) -> Iterator[None]:
    """For code that takes secrets from the environment alone: those that files give stand there
    for a moment. Others that read the environment at the same time would see them.

    Args:
        names: of environment variables; one that is set itself goes before its file.

    Raises:
        SecretFileError: a file cannot be read.
    """
    files = {name: os.environ.get(f"{name}{SUFFIX}") for name in names if not os.environ.get(name)}
    lent = {name: _read(f"{name}{SUFFIX}", Path(path)) for name, path in files.items() if path}
    before = {name: os.environ.get(name) for name in lent}
    os.environ.update(lent)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _holds_secret(kind: Any) -> bool:
    return kind is SecretStr or any(_holds_secret(part) for part in get_args(kind))


def _is_plain(kind: Any) -> bool:
    """One text, and not a dictionary or a list, which are JSON."""
    return kind is SecretStr or get_origin(kind) in (Union, UnionType)


def _read(variable: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise SecretFileError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretFileError(f"{variable}: {path} is not text") from None
    if len(content) > MOST_BYTES:
        raise SecretFileError(f"{variable}: {path} is longer than {MOST_BYTES} bytes")
    # Editors and `echo` end a file with a line break, which is no part of a secret.
    text = text.rstrip("\r\n")
    if not text:
        raise SecretFileError(f"{variable}: {path} is empty")
    return text


def _decoded(variable: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise SecretFileError(f"{variable}: its file is not JSON") from None
