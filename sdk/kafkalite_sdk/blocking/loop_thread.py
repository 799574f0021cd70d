"""The thread and the event loop of a blocking client.

Invariants:
1. Python code that changes the client runs in the thread of its loop. So Ctrl-C, which raises in the main thread, ends
   a wait and never interrupts the client itself.
2. The thread holds `lock` except while it waits for sockets and timers. Another thread that holds it may read and
   change the state of the client for a moment.
3. After `ended` no call begins, and every call that has begun ends.
4. A child process after a fork touches neither the loop nor the sockets: they are those of the parent.
"""

import asyncio
import os
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from kafkalite.errors import ClientUseError
from kafkalite_sdk._speedups.shared_sends import LoopLock
from kafkalite_sdk.blocking.operation import Operation

P = ParamSpec("P")
T = TypeVar("T")


class _UnlockingSelector(selectors.DefaultSelector):
    """Releases the lock of a client while its loop waits.

    Arguments:
        lock: of the client.
    """

    def __init__(self, lock: LoopLock) -> None:
        super().__init__()
        self._client_lock = lock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._client_lock.release()
        try:
            return super().select(timeout)
        finally:
            self._client_lock.acquire()


class LoopThread:
    """A thread that runs the event loop of one client.

    Arguments:
        name: of the client's class, for errors and for the name of the thread.

    Attributes:
        lock: held by the thread while it runs callbacks.
        loop: the event loop.
        ended: the loop accepts no more calls.
    """

    def __init__(self, name: str) -> None:
        self.lock = LoopLock()
        self.loop = asyncio.SelectorEventLoop(_UnlockingSelector(self.lock))
        self.ended = False
        self._name = name
        self._pid = os.getpid()
        self._sockets: list[socket.socket] = []
        self._operations: set[Operation[Any]] = set()
        self._waiting: dict[int, list[Operation[Any]]] = {}  # the calls that each thread, by its ident, waits for
        self._thread = threading.Thread(target=self._main, name=f"kafkalite-{name.lower()}", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError: no thread can be started."""
        try:
            self._thread.start()
        except Exception:  # "can't start new thread"
            self.ended = True
            self.loop.close()
            raise

    def _main(self) -> None:
        self.lock.acquire()
        try:
            self.loop.run_forever()
        finally:
            self.ended = True
            self.lock.end()
            for operation in list(self._operations):
                operation.cancel()
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(tasks))
            self.loop.close()
            for each in self._sockets:
                each.close()
            self.lock.release()

    # use

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that started the thread."""
        return os.getpid() != self._pid

    @property
    def inside(self) -> bool:
        """Whether this is the thread of the loop."""
        return self._thread is threading.current_thread()

    def check(self) -> None:
        """Raise ClientUseError where no call can wait: in a child process, in the thread itself, and after its end."""
        name = self._name
        if self.forked:
            raise ClientUseError(f"this {name} was started before a fork; create another one in the child process")
        if self.inside:
            raise ClientUseError(
                f"a callback of this {name} has called a method that waits; callbacks run in the thread of the client, "
                "so call the method in another thread"
            )
        if self.ended:
            raise ClientUseError(f"this {name} was closed; create another one")

    def check_not_waiting(self) -> None:
        """Raise ClientUseError in a function of the application that runs while its thread waits for a call."""
        if not self.forked and any(each.calls for each in self._waiting.get(threading.get_ident(), ())):
            raise ClientUseError(
                f"a listener of this {self._name} runs: call unsubscribe() or close() after the call that waits for it "
                "has returned"
            )

    def run(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function in the loop, and wait for its end.

        Ctrl-C, or another exception of a signal handler, cancels the call and is raised when the call has ended; a
        second one is raised at once.

        Raises: what the function raises. ClientUseError: see `check`.
        """
        return self.run_or_undo(None, function, *args, **kwargs)

    def run_or_undo(
        self,
        undo: Callable[[T], object] | None,
        function: Callable[P, Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run as `run` does; a result that the application does not receive, because of Ctrl-C, is passed to `undo`."""
        self.check()
        operation = Operation(lambda: function(*args, **kwargs))
        ident = threading.get_ident()
        outer = self._waiting.get(ident, [])
        try:
            self._waiting[ident] = [*outer, operation]
            self.begin(operation)
            operation.wait()
        except BaseException:
            self._abandon(operation, undo)
            raise
        finally:
            if outer:
                self._waiting[ident] = outer
            else:
                del self._waiting[ident]
        if operation.error is None:
            result = operation.result
            del operation.result  # contexts of what the call has started may keep the operation for long
            return result
        try:
            operation.raise_error()
        except asyncio.CancelledError:
            self.check()  # the client was closed meanwhile
            raise
        raise AssertionError("unreachable: the operation has an error")

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function in the loop, and return its result. Raises: as `run`."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called)

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop call a function soon; from any thread. Raises ClientUseError: see `check`."""
        if self.inside:
            self.loop.call_soon(function, *args)
            return
        self.check()
        if not self._post(function, *args):
            self.check()

    def signal(self, function: Callable[[], object]) -> Callable[[bytes], object]:
        """Return a function that has the loop call `function`; it takes one byte and runs no Python code. In the loop.

        Between two calls the loop must have called `function`.
        """
        receiver, sender = socket.socketpair()
        self._sockets += receiver, sender
        for each in (receiver, sender):
            each.setblocking(False)

        def received() -> None:
            receiver.recv(1)
            function()

        self.loop.add_reader(receiver, received)
        return sender.send

    def begin(self, operation: Operation[Any]) -> None:
        """Start an operation. Raises ClientUseError: the thread has ended."""
        self._operations.add(operation)
        if not self._post(self._begin, operation):
            self._operations.discard(operation)
            self.check()

    def _begin(self, operation: Operation[Any]) -> None:
        operation.begin(self._operations.discard)

    def _post(self, function: Callable[..., object], *args: object) -> bool:
        """Have the loop call a function, unless it has ended; returns whether it will."""
        return self.lock.inside(self._post_inside, function, args)

    def _post_inside(self, function: Callable[..., object], args: tuple[object, ...]) -> bool:
        if not self.ended:
            self.loop.call_soon_threadsafe(function, *args)
        return not self.ended

    def _abandon(self, operation: Operation[T], undo: Callable[[T], object] | None) -> None:
        """The application does not wait any more: cancel a call, and wait until it has ended."""
        if self.forked:
            return
        try:
            cancelled = self.lock.inside(self._cancel, operation, undo)
        except BaseException:  # a second Ctrl-C: the call must end, and its result must be undone, all the same
            self.lock.inside(self._cancel, operation, undo)
            raise
        if cancelled or operation in self._operations:
            operation.wait()

    def _cancel(self, operation: Operation[T], undo: Callable[[T], object] | None) -> bool:
        if operation.awaited:
            operation.abandon(undo)
        return self._post_inside(operation.cancel, ())

    # end

    def stop(self) -> None:
        """End the loop; in the loop. Calls that have not ended fail with ClientUseError. A second call does nothing."""
        if self.ended:
            return  # it would also end the loop that waits for the cancelled tasks
        self.ended = True
        self.lock.end()
        self.loop.stop()

    def end(self) -> None:
        """End the loop, and wait for the thread. A second call only waits."""
        self._post(self.stop)
        if not self.forked and not self.inside and self._thread.is_alive():
            self._thread.join()
