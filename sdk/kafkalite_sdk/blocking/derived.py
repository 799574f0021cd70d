"""Methods of blocking clients that have the signature and docstring of the method that they call in the loop."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from kafkalite_sdk.blocking.loop_thread import LoopThread

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

Method = Callable[Concatenate[A, P], R]
Coroutines = Callable[Concatenate[A, P], Coroutine[Any, Any, R]]


class Part(Generic[A]):
    """An object of a client, whose methods wait.

    Arguments:
        client: the object of the client of the SDK.
        thread: returns the thread of the client, or raises ClientUseError.
    """

    def __init__(self, client: A, thread: Callable[[], LoopThread]) -> None:
        self._client = client
        self._thread = thread


def wait_for(method: Coroutines[A, P, R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method of a `Part` or a `BlockingClient` that runs a coroutine method in the loop, and waits for it."""

    name = method.__name__  # looked up in each call, so that a subclass of the client may override it

    @wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._thread().run(getattr(self._client, name), *args, **kwargs)
        return result

    return wait


def call_in_loop(method: Method[A, P, R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method of a `BlockingClient` that calls a plain method in the loop."""
    name = method.__name__

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._thread().call(getattr(self._client, name), *args, **kwargs)
        return result

    return call
