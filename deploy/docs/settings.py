"""The page of the settings: all of them, with their defaults and what they mean."""

import json
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from deploy.docs.tables import table
from shared.contracts.described import field_descriptions
from shared.runtime.reloading import RELOADED
from shared.runtime.setting_kinds import ENV_PREFIX
from shared.runtime.settings import Settings

_HEAD = """# Settings

Every setting is an environment variable, or a line of a TOML file (`./freshet.toml`, or the path
in `FRESHET_SETTINGS_FILE`, which must be there), in lower case and without its prefix; the
environment wins. A variable that begins with `FRESHET_` and is no setting is refused at the start,
so that a misspelt one shows. `freshet settings` prints what holds, and where each value comes from.

A secret may stand in a file of its own: the variable's name with `_FILE` at its end
(`DATABASE_URL_FILE`, `FRESHET_KAFKA_SASL_PASSWORD_FILE`) gives the path, and the file holds nothing
but the value. The variable itself goes before its file. So may what is often kept with secrets:
`FRESHET_KAFKA_SASL_USERNAME`, and `FRESHET_POLLER_STREAMS`, whose URLs may have passwords.

A worker reads its file and the secrets' files again when it gets SIGHUP (`kill -HUP`, or
`docker compose kill -s HUP ingester`). Settings that say so below hold at once: the log names those
that have changed, and never what they are. Those that need a restart are named in a warning. Where
the file is gone, or one of its settings is wrong, all stay as they were, and an error in the log
says why. What stands in the environment itself does not change while a process runs.

"""

_RELOADED = "**Read again on SIGHUP.**"


def page() -> str:
    """The page, in Markdown."""
    said = field_descriptions(Settings)
    rows = [
        (
            f"`{_variable(name, field)}`",
            _type(field.annotation),
            _default(name, field),
            _said(said.get(name, ""), is_reloaded=name in RELOADED),
        )
        for name, field in Settings.model_fields.items()
    ]
    return _HEAD + table(("variable", "type", "default", "meaning"), rows)


def _said(text: str, *, is_reloaded: bool) -> str:
    return f"{text} {_RELOADED}".strip() if is_reloaded else text


def _variable(name: str, field: FieldInfo) -> str:
    return f"{ENV_PREFIX}{name.upper()}" if field.validation_alias is None else name.upper()


_WORDS: dict[Any, str] = {
    str: "text",
    float: "number",
    int: "whole number",
    bool: "`true`, `false`",
    SecretStr: "secret",
    Path: "path",
    tuple: "JSON list",
    dict: "JSON object",
}


def _type(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(one) for one in arguments if one is not type(None))
    if origin is Annotated:
        return _type(arguments[0])
    return _WORDS[origin or kind]


def _default(name: str, field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "the host's name" if name == "instance" else ""
    value = field.default
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float):
        value = f"{value:g}" if value < 1e6 else f"{value:.0f}"
    if isinstance(value, tuple) and value:
        value = json.dumps(value)
    return "" if value in (None, "", (), {}) else f"`{value}`"
