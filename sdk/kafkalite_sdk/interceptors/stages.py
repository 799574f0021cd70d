"""Finds the stages that interceptors use: a stage without an interceptor costs nothing."""

from collections.abc import Callable, Iterable
from typing import Any


def methods(interceptors: Iterable[object], base: type, stage: str) -> list[Callable[..., Any]]:
    """Return the methods of a stage, without those that an interceptor inherits from the base class.

    Arguments:
        interceptors: in the order of their calls.
        base: the class whose methods do nothing.
        stage: name of the method.
    """
    found = [getattr(each, stage) for each in interceptors]
    return [method for method in found if getattr(method, "__func__", None) is not getattr(base, stage)]


def check_interceptors(interceptors: Iterable[object], base: type) -> None:
    """Raise TypeError for an object of another class than `base`."""
    for each in interceptors:
        if not isinstance(each, base):
            raise TypeError(f"interceptors: {each!r} is not an instance of a subclass of {base.__name__}")


def note(method: Callable[..., Any], error: BaseException) -> None:
    """Add the name of the interceptor's method to an error that it raised."""
    error.add_note(f"raised by the interceptor {getattr(method, '__qualname__', method)}")
