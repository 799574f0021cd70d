"""Checks of arguments that all clients have in common: their names, positive numbers, times."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any


def reject_unknown(client: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for an argument that does not exist.

    Arguments:
        client: name of the class, for the error text.
        given: names of the arguments.
        known: names that the class has.
    """
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # 1.5 ms of import, for an error only

            similar = get_close_matches(name, known, 1)
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            raise TypeError(f"{client} has no argument {name!r}{hint}")


def reject_positional(client: str, example: str, misplaced: Sequence[object]) -> None:
    """Raise TypeError for positional arguments behind the address, such as a topic.

    Arguments:
        client: name of the class, for the error text.
        example: of a correct call.
        misplaced: the arguments.
    """
    if misplaced:
        raise TypeError(f"{client} has one positional argument, the address: {example}")


def positive(name: str, value: float) -> float:
    """Return a number above 0. Raises ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} is {value!r}, expected a number above 0")
    return value


def seconds_of(names: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the times in ms that were given, by the names of their fields in seconds. Raises ValueError."""
    return {f"{name[:-2]}s": positive(name, given[name]) / 1000 for name in names if name in given}


def check_seconds(name: str, value: object, *, least: float = -inf) -> None:
    """Raise TypeError unless a value is a number of seconds; ValueError for NaN and below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number of seconds")
    if not value >= least:
        expected = "a number of" if least == -inf else f"at least {least:g}"
        raise ValueError(f"{name} is {value}, expected {expected} seconds")
