"""A number of seconds as the value of an option."""

from math import isfinite
from typing import Any

import click


class Seconds(click.FloatRange):
    """A finite number, from `min` on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises click.BadParameter."""
        seconds: float = super().convert(value, param, ctx)
        if not isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds
