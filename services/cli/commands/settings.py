"""`freshet settings`."""

import os
from typing import TYPE_CHECKING, Any

import click

from shared.terminal.output import show_rows

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(as_json: bool) -> None:
    """All settings, their values and where they come from.

    A setting is given as FRESHET_<NAME> in the environment, or in a TOML file (./freshet.toml, or
    the path in FRESHET_SETTINGS_FILE); the environment wins. KAFKA_BOOTSTRAP_SERVERS and
    DATABASE_URL carry no prefix. Secrets may stand in files of their own, which variables name that
    end in _FILE (DATABASE_URL_FILE, FRESHET_KAFKA_SASL_PASSWORD_FILE); they are masked.

    \b
    Example:
      FRESHET_POLICY=uniform freshet settings
    """
    show_rows(_rows(), as_json=as_json, empty="")


def _rows() -> list[dict[str, Any]]:
    from pydantic import SecretStr  # noqa: PLC0415 - commands load what they need

    from services.cli.errors import without_password  # noqa: PLC0415
    from shared.runtime.settings import Settings, load_settings  # noqa: PLC0415
    from shared.runtime.shown_urls import shown  # noqa: PLC0415

    settings = load_settings()
    rows = []
    for name, field in Settings.model_fields.items():
        value: Any = getattr(settings, name)
        if name in ("database_url", "view_database_url") and value is not None:
            value = without_password(value.get_secret_value())
        elif isinstance(value, SecretStr):
            value = "********"
        elif name == "poller_streams":
            value = str([one | {"url": shown(one.get("url", ""))} for one in value])
        elif value is not None and not isinstance(value, str | int | float | bool):
            value = str(value)
        set_ = name in settings.model_fields_set
        source = "default" if not set_ else _source(name, field)
        rows.append({"setting": name, "value": value, "source": source})
    return rows


def _source(name: str, field: "FieldInfo") -> str:
    from shared.runtime.secret_files import SUFFIX, plain_variables  # noqa: PLC0415
    from shared.runtime.setting_kinds import ENV_PREFIX  # noqa: PLC0415
    from shared.runtime.settings import settings_file  # noqa: PLC0415

    known = {upper.upper() for upper in os.environ}
    for variable in plain_variables(ENV_PREFIX, name, field):
        if variable in known:
            return f"environment {variable}"
        if f"{variable}{SUFFIX}" in known:
            return f"file of {variable}{SUFFIX}"
    return f"file {settings_file()}"
