"""The backends under the contract, each as a service with several sessions that a synchronous test drives.

A test waits by `run_until_idle`: the calls have ended and the events of their changes have arrived. In a network it
is a read on every session: events come before a later response.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Clock, LoopClock, Offload, Outcome, Random, SystemRandom, Then, ThreadOffload
from kafkalite.coordination import journal
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.journal_file import open_journal
from kafkalite.coordination.served.server import TreeServer
from kafkalite.coordination.transactions import JournaledTree
from kafkalite.coordination.zookeeper.connection import Dial
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from kafkalite.net.client.connection import dial
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from kafkalite.testing.virtual_loop import VirtualLoop, pass_time
from tests.kit.virtual_time import LoopTime
from tests.kit.zookeeper_proxy import Fault, ZooKeeperProxy

T = TypeVar("T")
Notify = Callable[[], object]
Call = Callable[[Then], object]

DEADLINE_S = 60.0


class Service(Protocol):
    """A running service under test."""

    def connect(
        self, on_lost: Notify | None = None, on_suspended: Notify | None = None, on_resumed: Notify | None = None
    ) -> Coordination:
        """Return an established session."""

    def expire(self, session: Coordination) -> None:
        """End a session as the service does after its timeout, and wait until the session is lost."""

    def result(self, call: Call) -> Any:
        """Make a call, and return or raise its result when it and what it causes have arrived."""

    def run_until_idle(self) -> None:
        """Wait until everything under way has arrived."""

    def now_ms(self) -> int:
        """Return the wall time of the service."""

    def pass_time(self, ms: int) -> int:
        """Let time pass where that is possible; returns how many ms have passed at least."""

    def close(self) -> None:
        """End everything."""


class EmbeddedService:
    """The embedded tree: in memory, with a journal, with one written by jobs, or with one opened again."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._clock = VirtualClock()
        self._path = str(directory / "coordination.journal")
        self._offload = InlineOffload() if kind == "journal-jobs" else None
        self._embedded = EmbeddedCoordination(self._clock) if kind == "memory" else self._open()
        if kind == "reopened":
            session = self._embedded.connect()
            session.create("/left", b"behind", lambda outcome: outcome.result())
            session.create("/left/ephemeral", b"", lambda outcome: outcome.result(), ephemeral=True)
            self._embedded.close()
            self._embedded = self._open()
            session = self._embedded.connect()
            session.delete("/left", lambda outcome: outcome.result())
            session.close(lambda outcome: outcome.result())

    def _open(self) -> EmbeddedCoordination:
        return EmbeddedCoordination.open(Disk(), self._path, self._clock, self._offload)

    def connect(
        self, on_lost: Notify | None = None, on_suspended: Notify | None = None, on_resumed: Notify | None = None
    ) -> Coordination:
        session = self._embedded.connect(on_lost, on_suspended, on_resumed)
        self.run_until_idle()
        return session

    def expire(self, session: Coordination) -> None:
        self._embedded.expire(session.session_id)
        self.run_until_idle()

    def result(self, call: Call) -> Any:
        outcomes: list[Outcome] = []
        call(outcomes.append)
        self.run_until_idle()
        assert len(outcomes) == 1, "a call has one outcome"
        return outcomes[0].result()

    def run_until_idle(self) -> None:
        if self._offload is not None:
            self._offload.drain()

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def pass_time(self, ms: int) -> int:
        self._clock.advance(ms)
        return ms

    def close(self) -> None:
        self.run_until_idle()
        self._embedded.close()


class NetworkService:
    """A server of ZooKeeper's protocol, reached through a proxy; each service has a chroot of its own.

    Arguments:
        loop: runs everything.

    Attributes:
        timeout_ms: of the sessions.
    """

    proxy: ZooKeeperProxy
    timeout_ms = 2_000

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock: Clock
        self.random: Random = SystemRandom()
        self.address = ""
        self._dial: Dial = dial
        self._chroot = f"/contract-{secrets.token_hex(8)}"
        self._sessions: list[ZooKeeperSession] = []
        self._failures: list[BaseException] = []
        self._changed = asyncio.Event()  # after each outcome and change of a state
        loop.set_exception_handler(self._failed)

    def begin(self) -> None:
        """Create the chroot; when the server can be reached."""
        self.connect()
        self.result(self._sessions[0].create_chroot)

    # The service.

    def connect(
        self, on_lost: Notify | None = None, on_suspended: Notify | None = None, on_resumed: Notify | None = None
    ) -> ZooKeeperSession:
        return self.connect_by(on_lost=on_lost, on_suspended=on_suspended, on_resumed=on_resumed)

    def connect_by(self, **named: Any) -> ZooKeeperSession:
        """Return an established session; the arguments are those of `connect_zookeeper`."""

        for name in ("on_lost", "on_suspended", "on_resumed"):
            named[name] = self._notifying(named.get(name))

        async def connect(then: Then) -> None:
            connect_zookeeper(
                self.address + self._chroot, self.timeout_ms, then, dial=self._dial, clock=self.clock,
                random=self.random, **named,
            )  # fmt: skip

        session: ZooKeeperSession = self.outcome(lambda then: self.run(connect(then))).result()
        self._sessions.append(session)
        return session

    def _notifying(self, callback: Notify | None) -> Notify:
        def notify() -> None:
            self._changed.set()
            if callback is not None:
                callback()

        return notify

    def expire(self, session: Coordination, reconnecting: Notify | None = None) -> None:
        """End a session; `reconnecting` is called when the session has no connection, before it connects again."""
        assert isinstance(session, ZooKeeperSession)
        second = self.connect_by(key=session.key)  # the server closes the other connection of the session
        if reconnecting is not None:
            reconnecting()
        self.outcome(second.close).result()
        self.wait(lambda: session.lost)
        self.run_until_idle()

    def run_until_idle(self) -> None:
        while True:
            live = [each for each in self._sessions if not each.lost]
            for session in live:
                self.outcome(lambda then, session=session: session.exists("/", then))  # type: ignore[misc]
            if not any(each.core.open_calls for each in live):
                break  # no callback has made another call
        self.raise_failures()

    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def pass_time(self, ms: int) -> int:
        return 0

    def close(self) -> None:
        for session in self._sessions:
            if not session.lost and not session.suspended:
                self.outcome(session.close).result()
        self.run(self.end())
        self.loop.close()

    async def end(self) -> None:
        """End the connections, and the tasks that they have left."""
        for session in self._sessions:
            session.close(lambda outcome: None)
        self.proxy.close()
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    # Faults.

    def break_session(self, session: Coordination, fault: Fault) -> None:
        """Break the connection of one session."""

        async def breaking() -> None:
            self.proxy.break_session(session.session_id, fault)

        self.run(breaking())

    def abandon(self, session: Coordination) -> None:
        """Let a session have no connection any more, as when its process is killed; the server does not know it."""
        assert isinstance(session, ZooKeeperSession)
        self._sessions.remove(session)

        async def abandoning() -> None:
            session.stop()

        self.run(abandoning())

    # Driving the loop.

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine."""
        return self.loop.run_until_complete(main)

    def wait(self, condition: Callable[[], object]) -> None:
        """Run the loop until a condition holds, which an outcome or a change of a session's state brings about."""

        async def until() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

        self.run(until())

    def result(self, call: Call) -> Any:
        try:
            return self.outcome(call).result()
        finally:
            self.run_until_idle()

    def outcome(self, call: Call) -> Outcome:
        """Make a call and return its outcome."""
        outcomes: list[Outcome] = []

        def then(outcome: Outcome) -> None:
            outcomes.append(outcome)
            self._changed.set()

        call(then)
        self.wait(lambda: outcomes)
        assert len(outcomes) == 1, "a call has one outcome"
        return outcomes[0]

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failures.append(context.get("exception") or RuntimeError(context["message"]))

    def raise_failures(self) -> None:
        """Raise what callbacks of the loop have raised."""
        failures, self._failures = self._failures, []
        if failures:
            raise failures[0]


class VirtualService(NetworkService):
    """A server in virtual time, behind a proxy."""

    def __init__(self) -> None:
        loop = VirtualLoop()
        super().__init__(loop)
        self._network = MemoryNetwork(random.Random(0), fragment_bytes=64)
        self.clock = LoopTime(loop)
        self.random = SeededRandom(0)

    def listen(self, accept: Callable[[], asyncio.Protocol]) -> None:
        """Let the server accept connections, and begin."""
        network = self._network
        network.listen(accept, "server", 2181)
        self.proxy = ZooKeeperProxy(network.dial, "server", 2181)
        network.listen(self.proxy.accept, "proxy", 2181)
        self.address = "proxy:2181"
        self._dial = network.dial
        self.begin()

    def pass_time(self, ms: int) -> int:
        async def passing() -> None:
            await pass_time(ms / 1000)

        self.run(passing())
        return ms


class FakeService(VirtualService):
    """The fake server."""

    def __init__(self) -> None:
        super().__init__()
        self.listen(FakeZooKeeper(self.clock).accept)


class ServedService(VirtualService):
    """The served tree with its journal.

    Arguments:
        directory: has the journal.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._tree = open_served(directory, self.clock, None)
        self.listen(TreeServer(self._tree, self.clock, self.random).accept)

    def close(self) -> None:
        super().close()
        self._tree.close()


def open_served(directory: Path, clock: Clock, offload: Offload | None) -> JournaledTree:
    """Open the journal of a served tree."""
    file, tree = open_journal(Disk(), str(directory / "served.journal"), journal.SERVED_FORMAT)
    return JournaledTree(clock, tree, file, offload, version=journal.SERVED_FORMAT)


class ServerService(NetworkService):
    """A running server, over sockets.

    Arguments:
        loop: asyncio's or uvloop's.
        address: "host:port" of the server.
    """

    timeout_ms = 10_000  # a client notices a stall after two thirds; the rest is enough for it on a busy machine

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        super().__init__(loop)
        self.clock = LoopClock(loop)
        host, _, port = address.rpartition(":")
        self.proxy = ZooKeeperProxy(dial, host, int(port))
        self._listening = self.run(loop.create_server(self.proxy.accept, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        self.begin()

    async def end(self) -> None:
        await super().end()
        self._listening.close()
        await self._listening.wait_closed()


class ServedOverSockets(ServerService):
    """The served tree in the loop of the test, over sockets, with a journal that threads write."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path) -> None:
        clock = LoopClock(loop)
        self._jobs = ThreadOffload(loop)
        self._tree = open_served(directory, clock, self._jobs)
        server = TreeServer(self._tree, clock, SystemRandom())
        self._served = loop.run_until_complete(loop.create_server(server.accept, "127.0.0.1", 0))
        super().__init__(loop, f"127.0.0.1:{self._served.sockets[0].getsockname()[1]}")

    async def end(self) -> None:
        await super().end()
        self._served.close()
        await self._served.wait_closed()
        self._jobs.close()
        self._tree.close()
