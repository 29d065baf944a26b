"""Numbers that commands take."""

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number within limits: what is none (`nan`) is within none, and no end (`inf`) is no number.

    click lets both through: no comparison with `nan` is true, so that every limit looks kept.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number.

        Raises:
            BadParameter: it is none, or beyond the limits.
        """
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
