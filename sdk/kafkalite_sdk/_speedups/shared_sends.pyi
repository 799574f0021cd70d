"""Records that other threads than that of the event loop append to the queues of a producer."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, final

from typing_extensions import Buffer

from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, RecordMetadata

_T = TypeVar("_T")

__all__ = ["LoopLock", "RecordFuture", "SharedSends"]

class _Receiver(Protocol):
    """Attribute: `iterated`, the last item that was removed."""

    iterated: object

@final
class LoopLock:
    """The lock of a client. The thread of its event loop holds it, except while it waits for sockets and timers."""

    def acquire(self) -> bool:
        """Acquire the lock; Ctrl-C ends the wait. Returns: False = this thread has it already."""

    def release(self) -> None:
        """Release the lock. Raises RuntimeError: another thread, or none, has it."""

    def inside(self, function: Callable[..., _T], *args: object) -> _T:
        """Call a function with the lock. Ctrl-C never leaves it locked, as it may between `acquire` and `try`."""

    def outside(self, function: Callable[..., _T], *args: object) -> _T:
        """Call a function of the application without the lock, as the only call of a callback of the loop."""

    def interrupted(self) -> bool:
        """Whether a signal handler has ended a wait for the lock by an exception, since the last call of this."""

    def end(self) -> None:
        """The client is closed: `pop` returns None from now on."""

    def pop(self, items: list[_T], receiver: _Receiver) -> _T | None:
        """Remove the last item of a list that the loop changes, too, and return it.

        No signal handler runs between the removal and the assignment to the receiver.

        Arguments:
            items: in reverse order.
            receiver: its attribute becomes the item.

        Returns: None = the list is empty, the client is closed, or this is a child process after a fork.
        """

@final
class SharedSends:
    """The sends of a producer from any thread.

    Create it in the thread of the event loop.

    Arguments:
        accumulator: the queues; from now on this object wakes the loop for them.
        lock: of the client.
        signal: called with a byte, runs no Python code; has the loop call `woken`.
        refuse: called when no records are accepted; raises.
        wait_for_space, wait_for_drain: called without the lock, in the thread that sends; wait for space in the buffer.
        wait_for_record: called with a future that is not done, and a timeout in seconds or None; waits for it.
        call_soon: has the loop call a function with an argument.
        monotonic_s: the clock of the loop, in seconds.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        lock: LoopLock,
        *,
        signal: Callable[[bytes], object],
        refuse: Callable[[], object],
        wait_for_space: Callable[[], object],
        wait_for_drain: Callable[[], object],
        wait_for_record: Callable[[FutureRecordMetadata, float | None], object],
        call_soon: Callable[..., object],
        monotonic_s: Callable[[], float],
    ) -> None: ...
    def wake(self) -> None:
        """Have the loop send what is due; from any thread, with the lock."""

    def woken(self) -> None:
        """The loop has received a signal."""

    def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str | bytes, Buffer | None]] | None = None,
    ) -> RecordFuture:
        """Queue a record as `RecordAccumulator.send`, and wait for space where that one fails.

        Raises: as `RecordAccumulator.send`; BufferExhaustedError only in the thread of the loop, which cannot wait.
        """

    def drain(self) -> None:
        """Wait as the awaitable of `RecordAccumulator.drain`."""

@final
class RecordFuture:
    """The outcome of one record."""

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement, and return the position of the record.

        Arguments:
            timeout: in seconds; None = until the outcome is known, at most `delivery_timeout_ms`.

        Raises: what the record failed with. KafkaTimeoutError: the timeout has passed; the record may still arrive.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome, and return the error with which the record failed, else None.

        Arguments:
            timeout: as of `result`.

        Raises: KafkaTimeoutError: the timeout has passed.
        """

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Have the thread of the client call a function with this future when the outcome is known."""
