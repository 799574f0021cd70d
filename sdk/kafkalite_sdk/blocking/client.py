"""The base of the blocking clients: start, calls and close of a client of the SDK in a thread of its own."""

import weakref
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, ParamSpec, Protocol, Self, TypeVar

from kafkalite.errors import ClientUseError
from kafkalite_sdk.blocking.closing import close_forgotten, register, unregister
from kafkalite_sdk.blocking.loop_thread import LoopThread
from kafkalite_sdk.blocking.operation import Operation
from kafkalite_sdk.client.closing import AT_ONCE
from kafkalite_sdk.client.cluster_client import ClusterClient


class _Client(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Client)
P = ParamSpec("P")
T = TypeVar("T")


class BlockingClient(Generic[C]):
    """A client of the SDK, and the thread that runs it.

    Arguments:
        client: is not started.
        cluster: of the client.
    """

    def __init__(self, client: C, cluster: ClusterClient) -> None:
        self._client = client
        self._cluster = cluster
        self._loop_thread: LoopThread | None = None
        self._starting: LoopThread | None = None
        self._closed = False
        self._interrupted = False  # a close
        self._finalizer: weakref.finalize[..., BlockingClient[C]] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._loop_thread is None or not self._loop_thread.forked:
            self._exit(error)

    def start(self) -> None:
        """Connect to the cluster; `with` does it. After a failure it may be called again.

        Raises: as `start` of the client of the SDK.
        """
        self._start(lambda _: self._client.start(), self._client.close)

    def close(self) -> None:
        """Close all connections and end the thread; open calls fail with ClientUseError. A second call does nothing."""
        self._close(self._client.close)

    def _exit(self, error: BaseException | None) -> None:
        """Close, at the end of a `with` block that has raised `error`."""
        self.close()

    def __repr__(self) -> str:
        return repr(self._client)

    # calls

    def _thread(self) -> LoopThread:
        """The thread of a started client. Raises ClientUseError."""
        if self._loop_thread is None:
            name = type(self).__name__
            state = "was closed; create another one" if self._closed else 'is not started; use "with" or its start()'
            raise ClientUseError(f"this {name} {state}")
        return self._loop_thread

    def _run(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread().run(function, *args, **kwargs)

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread().call(function, *args, **kwargs)

    # start and close

    def _start(
        self,
        start: Callable[[LoopThread], Awaitable[None]],
        close: Callable[[], Awaitable[object]],
        ready: Callable[[], object] | None = None,
    ) -> None:
        """Start the thread, and the client in it.

        Arguments:
            start: of the client; receives its thread.
            close: of the client, when the application forgets to close it.
            ready: called in the loop when the client has started; None = nothing.
        """
        if self._loop_thread is not None or self._closed:
            state = "was closed" if self._closed else "is started"
            raise ClientUseError(f"this {type(self).__name__} {state}; create another one")
        thread = LoopThread(type(self).__name__)

        async def begin() -> None:
            await start(thread)
            self._loop_thread = thread  # from now on it must be closed, also if Ctrl-C is raised
            register(thread, close)
            if ready is not None:
                ready()

        try:
            thread.start()
            self._starting = thread
            thread.run(begin)
        finally:
            self._starting = None
            if self._loop_thread is None:
                if not thread.ended:
                    thread.end()
            else:
                self._finalizer = weakref.finalize(self, close_forgotten, thread, type(self).__name__)
                self._finalizer.atexit = False

    def _close(self, close: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Close the client with a coroutine function, and end the thread. A call during another one waits for it.

        The loop ends its thread itself, so Ctrl-C leaves none behind. Whenever it is raised, the client is closed as by
        a cancelled call: if the close has not begun, the loop closes the client at once, without the application. Nor
        does a later call wait for what this one was to wait for.
        """
        thread = self._loop_thread or self._starting
        if thread is None or thread.ended:
            self._closed = True
            return

        async def close_and_end() -> None:
            AT_ONCE.set(self._interrupted)
            try:
                await close(*args, **kwargs)
            finally:
                if self._cluster.owner.ended:  # else an argument is not valid, or another call of close still waits
                    self._end(thread)

        try:
            thread.check_not_waiting()
            thread.run(close_and_end)
        except ClientUseError:
            if not thread.ended:  # else another close has ended the thread meanwhile
                raise
        except Exception:
            raise
        except BaseException:
            self._interrupted = True
            try:
                self._close_alone(thread, close_and_end)
            except BaseException:  # a second Ctrl-C
                self._close_alone(thread, close_and_end)
                raise
            raise
        finally:
            if self._closed:
                thread.end()

    @staticmethod
    def _close_alone(thread: LoopThread, close_and_end: Callable[[], Awaitable[None]]) -> None:
        """Have the loop close the client; nothing waits for it."""
        if not thread.ended:
            try:
                thread.begin(Operation(close_and_end))
            except ClientUseError:  # it has ended meanwhile
                return

    def _end(self, thread: LoopThread) -> None:
        """The client is closed; in the loop."""
        self._closed = True
        unregister(thread)
        if self._finalizer is not None:
            self._finalizer.detach()
        thread.loop.call_soon(thread.stop)  # other calls of close end before
