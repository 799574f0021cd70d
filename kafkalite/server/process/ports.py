"""Defines `Ports`: everything that a broker uses from outside, as one value whose defaults are the real ones.

    Broker(data_dir, ports=Ports(disk=FaultyDisk(), random=SeededRandom(1)))

A broker takes time, timers, random numbers, threads, files, sockets and its coordination service from its ports alone.
So tests replace any of them, and one thread simulates whole brokers in virtual time.
"""

import asyncio
import socket
import ssl as ssl_module
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kafkalite._speedups.net.framing import Limits, Service
from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import (
    BrokerClock,
    Clock,
    Executor,
    LoopClock,
    Offload,
    Raised,
    Random,
    SystemRandom,
    Then,
    ThreadOffload,
)
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Tree
from kafkalite.net.listener import ConnectionCounts, Listener, SocketOptions
from kafkalite.server.process.descriptors import descriptors_of_process
from kafkalite.storage.flush.fsync_threads import syncer_for
from kafkalite.storage.log.flush_job import ClosableSyncer

if TYPE_CHECKING:  # a broker that is alone connects to nothing
    from kafkalite.coordination.served.coordination import ServedCoordination
    from kafkalite.coordination.zookeeper.access import Access
    from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession
    from kafkalite.coordination.zookeeper.opening import SessionOpening
    from kafkalite.net.client.connection import Dial
    from kafkalite.net.transport import TlsSide


class OffloadFactory(Protocol):
    """Creates the executor of one kind of jobs; `ThreadOffload` describes the arguments."""

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: int = 4,
        raised: Raised | None = None,
        *,
        name: str = ...,
        prepare: Callable[[], object] | None = None,
    ) -> Executor: ...


class BrokerListener(Protocol):
    """Accepts the connections of all addresses of a broker; `net.listener.Listener` describes the methods."""

    def bind(self, host: str, port: int, name: str = ...) -> tuple[str, int]: ...
    def inherit(self, listening: socket.socket, name: str = ...) -> tuple[str, int]: ...
    def limit(self, connections_max: int, connections_per_ip_max: int, own_max: int | None = None) -> None: ...
    def free_unused(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def disconnect(self, reason: str) -> None: ...
    async def close(self, grace_s: float = ...) -> None: ...


class ListenerFactory(Protocol):
    """Creates a listener of a broker; `net.listener.Listener` describes the arguments."""

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        limits: Limits | None = None,
        *,
        tls: "TlsSide | None" = None,
        counts: ConnectionCounts | None = None,
        sockets: SocketOptions | None = None,
        refuse_from: int | None = None,
    ) -> BrokerListener: ...


def open_embedded(
    disk: Disk, journal: str | None, clock: Clock, offload: Offload, check: Callable[[Tree], object]
) -> EmbeddedCoordination:
    """Open the coordination service of a broker that is alone.

    Arguments:
        disk: holds the journal.
        journal: path of the journal file; None = the service is in memory only.
        clock: gives the times of the nodes.
        offload: writes and flushes the journal.
        check: called with the tree of an existing journal before the journal is written to; its exceptions are raised.

    Raises OSError, JournalError.
    """
    if journal is None:
        return EmbeddedCoordination(clock)
    return EmbeddedCoordination.open(disk, journal, clock, offload, check)


async def dial(
    protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None
) -> None:
    """Connect over TCP; `net.client.connection.dial` describes arguments and errors."""
    from kafkalite.net.client import connection

    await connection.dial(protocol, host, port, ssl)


def serve_directory(path: str, disk: Disk, clock: Clock, random: Random, offload: Offload) -> "ServedCoordination":
    """Return the coordination service of the brokers of one machine.

    Arguments:
        path: the shared directory.
        disk, clock, random, offload: those of the `Ports`; see `ServedCoordination`.
    """
    from kafkalite.coordination.served.coordination import ServedCoordination

    return ServedCoordination(path, disk, clock, random, offload, descriptors_of_process().refuse_from)


class ClusterCoordination(Protocol):
    """Opens a session with the coordination service of a cluster; see `connect_zookeeper`."""

    def __call__(
        self,
        servers: str,
        timeout_ms: int,
        then: Then,
        *,
        dial: "Dial",
        clock: Clock,
        random: Random,
        on_lost: Callable[[], object],
        on_suspended: Callable[[], object],
        on_resumed: Callable[[], object],
        in_flight_max: int,
        access: "Access | None" = None,
        key: tuple[int, bytes] | None = None,
    ) -> "SessionOpening": ...


def connect_zookeeper(
    servers: str,
    timeout_ms: int,
    then: Then,
    *,
    dial: "Dial",
    clock: Clock,
    random: Random,
    on_lost: Callable[[], object],
    on_suspended: Callable[[], object],
    on_resumed: Callable[[], object],
    in_flight_max: int,
    access: "Access | None" = None,
    key: tuple[int, bytes] | None = None,
) -> "SessionOpening":
    """Open a session with ZooKeeper, and create the chroot if it is missing (`SessionOpening`).

    Arguments:
        servers: as in `zookeeper.connect`.
        timeout_ms: of the session.
        then: called with the session or the error.
        dial, clock, random: those of the `Ports`.
        on_lost, on_suspended, on_resumed: called when the session expires, loses its connection and has one again.
        in_flight_max: number of requests without a response.
        access: encryption and identity; None = plain text without an identity.
        key: id and password of an existing session; None = a new one.

    Raises ValueError: `servers` is not valid.
    """
    from kafkalite.coordination.zookeeper.access import ANONYMOUS
    from kafkalite.coordination.zookeeper.coordination import connect_zookeeper
    from kafkalite.coordination.zookeeper.opening import SessionOpening
    from kafkalite.coordination.zookeeper.session import NEW_SESSION, SessionKey

    def connect(established: Then, lost: Callable[[], object]) -> "ZooKeeperSession":
        return connect_zookeeper(
            servers, timeout_ms, established, dial=dial, clock=clock, random=random, in_flight_max=in_flight_max,
            on_lost=lost, on_suspended=on_suspended, on_resumed=on_resumed,
            access=access or ANONYMOUS, key=NEW_SESSION if key is None else SessionKey(*key),
        )  # fmt: skip

    opening = SessionOpening(connect, then, on_lost, is_new=key is None)
    opening.begin()
    return opening


def boot_id() -> str:
    """Return the id of this boot of the machine, "" where there is none."""
    from kafkalite.server.process.saved_session import boot_id_here  # a broker that is alone does not need it

    return boot_id_here()


@dataclass(frozen=True, slots=True)
class Ports:
    """The interfaces of a broker to its environment.

    Arguments:
        clock: creates the clock and the timers of a broker, from its loop and a handler of failed callbacks.
        random: source of ids and random names.
        offload: creates the executors of jobs outside the loop. A broker has several, one for each kind of jobs.
        disk: holds all files; None = the real disk, without fsync where the log directory is temporary.
        syncer: creates what flushes batches to the disk, from the disk, the log directories, the loop, an executor and
            a handler of failed callbacks.
        listen: creates the listeners: one for all addresses without security, one for each other address.
        dial: connects to other brokers and to the coordination service.
        coordination: opens the coordination service of a broker that is alone; `open_embedded` describes the arguments.
        cluster: opens sessions with that of a cluster; `connect_zookeeper` describes the arguments.
        served: creates that of the brokers of one machine; `serve_directory` describes the arguments.
        boot_id: returns the id of this boot of the machine, "" where there is none: after another one, what was not
            flushed may be lost.
    """

    clock: Callable[[asyncio.AbstractEventLoop, Raised], BrokerClock] = LoopClock
    random: Random = field(default_factory=SystemRandom)
    offload: OffloadFactory = ThreadOffload
    disk: Disk | None = None
    syncer: Callable[[Disk, Sequence[str], asyncio.AbstractEventLoop, Executor, Raised], ClosableSyncer] = syncer_for
    listen: ListenerFactory = Listener
    dial: "Dial" = dial
    coordination: Callable[[Disk, str | None, Clock, Offload, Callable[[Tree], object]], EmbeddedCoordination] = (
        open_embedded
    )
    cluster: ClusterCoordination = connect_zookeeper
    served: Callable[[str, Disk, Clock, Random, Offload], "ServedCoordination"] = serve_directory
    boot_id: Callable[[], str] = boot_id
