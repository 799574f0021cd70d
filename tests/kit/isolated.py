"""Foreign clients in processes of their own, which can be killed when they hang.

librdkafka's close and destroy wait for its own threads, and sometimes for ever: in 2.16 a broker thread that destroys
a queued offset reset locks a mutex that it holds (rd_kafka_offset_reset_op_cb); confluentinc/librdkafka#3954 is another
case. No signal interrupts that wait, so it would take the test worker with it. `Isolated` puts one object into a
process, `killable` runs a function there. A client that a function passes to `closed_later` is closed after the answer
was sent: when its close hangs, the answer counts, the process is killed, and the test reports that.
"""

from __future__ import annotations

import copyreg
import functools
import multiprocessing
import pickle
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any, ParamSpec, Self, TypeVar

import confluent_kafka as ck

P = ParamSpec("P")
R = TypeVar("R")

ANSWER_S = 240.0  # for a call: longer than every deadline of the call itself
CLOSE_S = 30.0  # for a close
READY = "ready"
HUNG: list[str] = []  # reports of killed processes, for the test that runs

_closing: list[Callable[[], object]] | None = None  # in an isolated process: what is closed after the answer


def exception_of(*args: Any) -> ck.KafkaException:
    """librdkafka's exception again: its class names a module that cannot be imported, so pickle needs a function."""
    return ck.KafkaException(*args)


def error_of(code: int, text: str, fatal: bool, retriable: bool) -> ck.KafkaError:
    """librdkafka's error again."""
    return ck.KafkaError(code, text, fatal, retriable)


copyreg.pickle(ck.KafkaException, lambda error: (exception_of, error.args))
copyreg.pickle(ck.KafkaError, lambda error: (error_of, (error.code(), error.str(), error.fatal(), error.retriable())))


@functools.cache
def context() -> ForkServerContext:
    """The fork server: a clean process without threads, from which isolated processes are forked in milliseconds."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.kit.secured.clients", "tests.kit.isolated", "tests.kit.clients"])
    return found


def closed_later(close: Callable[[], object]) -> None:
    """Call `close` after the answer of this call was sent; at once outside of an isolated process."""
    if _closing is None:
        close()
    else:
        _closing.append(close)


def dropped_later(client: object) -> None:
    """Drop a client that has no `close` after the answer of this call was sent: its destructor may hang as well."""
    closed_later(functools.partial(id, client))


def serve(pipe: Connection, make: Callable[..., object], args: tuple[Any, ...]) -> None:
    """The main function of an isolated process: answers calls until the other end of the pipe is closed."""
    global _closing
    _closing = []
    found: object = None
    try:
        while True:
            name, arguments, named = pipe.recv() if found is not None else ("", args, {})
            try:
                if found is None:
                    answer: Any = (found := make(*arguments)) and None
                else:
                    answer = getattr(found, name)(*arguments, **named)
                pipe.send((True, answer))
            except Exception as error:
                pipe.send((False, portable(error)))
                if found is None:
                    return
            while _closing:
                _closing.pop()()
            pipe.send(READY)
    except (EOFError, ConnectionResetError):  # reset: the other end has left an answer unread
        return


def portable(error: Exception) -> Exception:
    """The exception itself where it survives pickling, else one with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as unportable:  # whatever a foreign exception raises there, its text is what matters
        return RuntimeError(f"{error!r} ({unportable})")
    return error


class Isolated:
    """An object in a process of its own; methods are called by their names on this one. For one thread.

    Arguments:
        make: makes the object in the process; importable by name, as are its arguments.

    Raises (from calls): what the method raised; TimeoutError when it does not answer, after the process was killed.
    """

    def __init__(self, make: Callable[..., object], *args: Any) -> None:
        self._name = make.__qualname__
        self._pipe, far = context().Pipe()
        self._process = context().Process(target=serve, args=(far, make, args), daemon=True)
        self._process.start()
        far.close()
        self._busy = True  # until it has said READY
        self._answer(self._name)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self.call, name)

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        """Call the method `name`; its answer."""
        assert self.ready(), f"{self._name} was lost"
        self._pipe.send((name, args, named))
        self._busy = True
        return self._answer(name)

    def _answer(self, name: str) -> Any:
        if not self._pipe.poll(ANSWER_S):
            self.kill(f"{name} did not return within {ANSWER_S:.0f} s")
            raise TimeoutError(HUNG[-1])
        good, answer = self._pipe.recv()
        if good:
            return answer
        raise answer

    def ready(self) -> bool:
        """Wait until what the last call left to be closed is closed; False after that hung and was killed."""
        if self._busy and self._process.is_alive():
            if self._pipe.poll(CLOSE_S):
                self._busy = self._pipe.recv() != READY
            else:
                self.kill(f"close hung for {CLOSE_S:.0f} s")
        return not self._busy and self._process.is_alive()

    def close(self) -> None:
        """Call `close` of the object if there is one, and end the process."""
        if self.ready():
            self._pipe.send(("close", (), {}))
            if not self._pipe.poll(CLOSE_S):
                self.kill(f"close hung for {CLOSE_S:.0f} s")
        self._pipe.close()
        self._process.join(CLOSE_S)
        if self._process.is_alive():
            self.kill(f"its process did not end within {CLOSE_S:.0f} s")

    def kill(self, why: str) -> None:
        """Kill the process, and have the test report it."""
        self._process.kill()
        self._process.join()
        HUNG.append(f"{self._name}: {why}; its process was killed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Functions:
    """In an isolated process: functions that `killable` has wrapped, called by module and name."""

    def run(self, module: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found.__wrapped__(*args, **named)

    def close(self) -> None:
        """Nothing is left open between two calls."""


_functions: list[Isolated] = []


def killable(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function, or a method of an object that can be pickled, in a process that can be killed.

    One process serves all calls of this one, until it has to be killed. Arguments and result are pickled.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **named: P.kwargs) -> R:
        while not (_functions and _functions[0].ready()):
            _functions[:] = [Isolated(Functions)]
        answer: R = _functions[0].run(function.__module__, function.__qualname__, args, named)
        return answer

    return wrapper
