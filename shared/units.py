"""Units that everybody converts between: the web is counted in days, clocks in seconds."""

from typing import Final

SECONDS_PER_DAY: Final = 86_400.0
