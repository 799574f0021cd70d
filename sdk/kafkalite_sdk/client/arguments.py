"""Rules for the arguments of all clients: checks of names, numbers and times, and a readable signature."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from math import inf
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., None])

INT32_MAX = 0x7FFFFFFF


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


def text(name: str, value: object) -> str:
    """Return a text. Raises TypeError that names the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected a str")
    return value


def boolean(name: str, value: object) -> bool:
    """Return a flag. Raises TypeError that names the argument."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected a bool")
    return value


def integer(name: str, value: object, *, least: int = 1) -> int:
    """Return a number of records or bytes, as an int32 of the protocol.

    Arguments:
        name: of the argument, for the error text.
        value: of the argument.
        least: smallest valid number.

    Raises:
        TypeError: it is no int. ValueError: it is out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected an int")
    if not least <= value <= INT32_MAX:
        raise ValueError(f"{name} is {value}, expected {least} to {INT32_MAX}")
    return value


def seconds(name: str, value: object, *, least: float = 0) -> float:
    """Return the seconds of a time in ms, which is an int32 of the protocol; the arguments and errors of `integer`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected a number of milliseconds")
    if not least <= value <= INT32_MAX:  # also rejects NaN
        raise ValueError(f"{name} is {value}, expected {least:g} to {INT32_MAX} milliseconds")
    return value / 1000


def seconds_of(names: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the times in ms that were given and are above 0, by the names of their fields in seconds.

    Raises:
        TypeError: a value is no number. ValueError: it is out of range.
    """
    return {f"{name[:-2]}s": seconds_above_0(name, given[name]) for name in names if name in given}


def seconds_above_0(name: str, value: object) -> float:
    """Return the seconds of a time in ms that must not be 0. Raises TypeError, ValueError."""
    value_s = seconds(name, value)
    if not value_s:
        raise ValueError(f"{name} is {value}, expected a number of milliseconds above 0")
    return value_s


def check_seconds(name: str, value: object, *, least: float = -inf) -> None:
    """Raise TypeError unless a value is a number of seconds; ValueError for NaN and below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number of seconds")
    if not value >= least:
        expected = "a number of" if least == -inf else f"at least {least:g}"
        raise ValueError(f"{name} is {value}, expected {expected} seconds")


def readable(options: str) -> Callable[[F], F]:
    """Give `__init__` a signature for people, of names and defaults; its last parameter names the type of the options.

    The one of Python shows an option type as `*<class ...>`, and expands the types of serializers to a line each.

    Arguments:
        options: name of the TypedDict with the keyword arguments, as `help` finds it.
    """

    def with_signature(init: F) -> F:
        code = init.__code__
        positional, keywords = code.co_varnames[: code.co_argcount], code.co_varnames[code.co_argcount :]
        keywords = keywords[: code.co_kwonlyargcount]
        defaults = init.__kwdefaults__ or {}
        init.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                *(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in positional),
                *(Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name]) for name in keywords),
                Parameter("options", Parameter.VAR_KEYWORD, annotation=options),
            ]
        )
        return init

    return with_signature
