"""Runs changes of the cluster's metadata: one after another for each object, applied once durable, or refused."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

from kafkalite.callbacks import SerialExecutor, once
from kafkalite.clock import Outcome, Then
from kafkalite.errors import KafkaErrorCode, reason_of, shorten


class _Refusal(NamedTuple):
    error: int
    message: str | None = None


class Refusal(_Refusal):
    """Why a change was rejected: a Kafka error code and a message for the user, short enough for a response."""

    __slots__ = ()

    def __new__(cls, error: int, message: str | None = None) -> "Refusal":
        return super().__new__(cls, error, None if message is None else shorten(message))


class RefusedError(Exception):
    """Raised with the `Refusal` of a change."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(error, message)


ChangeCompletion = Callable[[Refusal | None], None]
Change = Callable[[ChangeCompletion], None]


def run_change(serial: SerialExecutor, key: Hashable, change: Change, then: ChangeCompletion) -> None:
    """Run a change after all earlier ones of its key.

    Arguments:
        serial: of the objects that are changed.
        key: of the object.
        change: calls its argument with its outcome, or raises RefusedError.
        then: called once: with None, or with the reason of the refusal.
    """

    def step(end: Callable[[], None]) -> None:
        def end_change(refusal: Refusal | None) -> None:
            try:
                then(refusal)
            finally:
                end()

        complete = once(end_change)  # an exception of the next change, which `end` runs, propagates through this one
        attempt(partial(change, complete), complete)

    serial.run(key, step)


def attempt(change: Callable[[], object], complete: ChangeCompletion) -> None:
    """Start or continue a change. A RefusedError completes it; any other exception completes it and is raised."""
    try:
        change()
    except RefusedError as error:
        complete(error.refusal)
    except Exception:
        complete(Refusal(KafkaErrorCode.UNKNOWN_SERVER_ERROR))
        raise


def refusal_of(error: int) -> Refusal | None:
    """The refusal of a change with this error code, None for 0."""
    return Refusal(error, reason_of(error)) if error else None


def applying_later(apply: Callable[[Then], None], complete: ChangeCompletion) -> Callable[[int], None]:
    """A callback for the error code of the store: applies the change if it is 0, and completes it.

    Arguments:
        apply: may take several loop iterations, and calls its argument with its outcome.
        complete: of the change.
    """

    def applied(outcome: Outcome) -> None:
        attempt(outcome.result, complete)
        complete(None)

    def kept(error: int) -> None:
        if error:
            complete(Refusal(error, reason_of(error)))
        else:
            attempt(partial(apply, applied), complete)

    return kept
