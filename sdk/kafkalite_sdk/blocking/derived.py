"""Methods that wait for the coroutine method of the same name."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from kafkalite_sdk.blocking.loop_thread import LoopThread

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class Part(Generic[A]):
    """An object of a client, whose methods wait.

    Arguments:
        part: the object of the client of the SDK.
        thread: returns the thread of the client, or raises ClientUseError.
    """

    def __init__(self, part: A, thread: Callable[[], LoopThread]) -> None:
        self._part = part
        self._thread = thread


class Blocking(Generic[A, P, R]):
    """A method of a `Part` that runs a coroutine method in the loop, and waits for its end.

    Arguments:
        method: the coroutine method.
    """

    def __init__(self, method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, part: None, owner: type[Part[A]]) -> Self: ...
    @overload
    def __get__(self, part: Part[A], owner: type[Part[A]]) -> Callable[P, R]: ...
    def __get__(self, part: Part[A] | None, owner: type[Part[A]]) -> Self | Callable[P, R]:
        return self if part is None else self._bound(part)

    def _bound(self, part: Part[A]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return part._thread().run(self._method, part._part, *args, **kwargs)

        call.__name__, call.__doc__ = self._method.__name__, self._method.__doc__
        return call
