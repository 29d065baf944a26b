"""Settings that are read again while a worker runs: on SIGHUP, from its file and those of secrets.

A few settings are looked up each time that they are used, or can be put in the place of those
before. What else differs is named, and holds from the next start on. The environment of a process
does not change: what it gives itself stays as it is.
"""

import logging
from collections.abc import Callable
from typing import Final

import structlog

from shared.runtime.logs import set_level
from shared.runtime.settings import Settings, SettingsError, load_settings, settings_file

log = structlog.get_logger(__name__)

RELOADED: Final = frozenset(
    {
        "discovery_exclude",
        "discovery_hosts",
        "discovery_include",
        "discovery_most_depth",
        "discovery_most_pages_of_host",
        "discovery_most_query_characters",
        "discovery_most_segments",
        "log_level",
        "receiver_tokens",
        "receiver_urls_per_sender_per_second",
        "refused_signals_kept_per_second",
        "signal_source_keys",
        "signal_sources",
        "signals_from_others_per_second",
        "signals_from_others_share",
        "signals_per_source_per_second",
    }
)
"""Settings that hold at once. The documentation says so of each."""


class Reloading:
    """The settings of a process, as they were read last."""

    def __init__(self, settings: Settings, take: Callable[[Settings], None]) -> None:
        """Begin with those of the start.

        Args:
            settings: of the process.
            take: makes others hold: all of them or, where it raises `SettingsError`, none.
        """
        self.settings = settings
        self._take = take
        self._file = settings_file() if settings_file().is_file() else None
        """That the settings of the start are from."""

    def reload(self) -> None:
        """Read the settings again, and say what has changed; bad ones change nothing."""
        try:
            self._reload(self._read())
        except SettingsError as error:
            # What is wrong is the operator's, who needs no trace of ours.
            log.log(logging.ERROR, "the settings cannot be taken: the old stay", reason=str(error))

    def _read(self) -> Settings:
        if self._file is not None and not self._file.is_file():
            raise SettingsError(f"{self._file} is gone")
        return load_settings()

    def _reload(self, found: Settings) -> None:
        names = sorted(type(found).model_fields)
        differing = [n for n in names if getattr(found, n) != getattr(self.settings, n)]
        changed = [name for name in differing if name in RELOADED]
        new = self.settings.model_copy(update={name: getattr(found, name) for name in changed})
        self._take(new)
        self.settings = new
        set_level(new.log_level)
        log.warning("settings read again", changed=changed)
        if waiting := [name for name in differing if name not in RELOADED]:
            log.warning("these settings have changed, and need a restart", settings=waiting)
