"""A session with ZooKeeper: the interface of `backend.Coordination`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalite.callbacks import gather
from kafkalite.clock import Clock, Outcome, Random, Then
from kafkalite.coordination.errors import (
    BadArgumentsError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kafkalite.coordination.tree import ANY_VERSION, Create, Delete, Operation, Set, Watcher
from kafkalite.coordination.zookeeper import records
from kafkalite.coordination.zookeeper.access import ANONYMOUS, Access
from kafkalite.coordination.zookeeper.address import parse_address
from kafkalite.coordination.zookeeper.connection import Connector, Dial
from kafkalite.coordination.zookeeper.operations import Root
from kafkalite.coordination.zookeeper.protocol import error_of
from kafkalite.coordination.zookeeper.session import NEW_SESSION, Finish, SessionCore, SessionKey, State
from kafkalite.coordination.zookeeper.watches import CHILD, DATA, EXIST

Callback = Callable[[], object]
IN_FLIGHT_MAX = 10  # as zookeeper.max.in.flight.requests


class Read(NamedTuple):
    """Converts the response to a read, and names the type of its watch."""

    convert: Callable[[Any], Any]
    watch_type: int


READS: dict[Any, Read] = {
    records.GetDataRequest: Read(lambda response: (response.data or b"", response.stat), DATA),
    records.ExistsRequest: Read(lambda response: response.stat, DATA),
    records.GetChildren2Request: Read(lambda response: (sorted(response.children), response.stat), CHILD),
}


def connect_zookeeper(
    servers: str,
    timeout_ms: int,
    then: Then,
    *,
    dial: Dial,
    clock: Clock,
    random: Random,
    on_lost: Callback | None = None,
    on_suspended: Callback | None = None,
    on_resumed: Callback | None = None,
    access: Access = ANONYMOUS,
    in_flight_max: int = IN_FLIGHT_MAX,
    key: SessionKey = NEW_SESSION,
) -> "ZooKeeperSession":
    """Begin a session in the running event loop. It is suspended, and has the id 0, until it is established.

    Arguments:
        servers: "host:port,host:port/chroot", as in zookeeper.connect.
        timeout_ms: the session timeout to ask for; the server chooses one within its limits.
        then: called once with the session when it is established, which takes as long as no server can be reached. Or
            with the error that ends it before: AuthenticationError, TlsError, SessionExpiredError (of `key`, or by
            `close`).
        dial: connects, see `Dial`; `net.client.connection.dial` over TCP.
        clock: monotonic time and timers, of the loop that runs.
        random: chooses the first server and the random part of the back-off.
        on_lost, on_suspended, on_resumed: see rules 6 and 7 of `backend`. None is called before `then`.
        access: TLS, identity, and access control lists of created nodes.
        in_flight_max: requests without a response; the others wait.
        key: of a session to continue, for example to close the one of an earlier process. NEW_SESSION = a new one.

    Raises ValueError: `servers` is not valid.
    """
    address = parse_address(servers)
    root = Root(address.chroot, access.acl)
    session = ZooKeeperSession(root, timeout_ms, key, access.digest, in_flight_max)
    session.register_callbacks(then, on_lost, on_suspended, on_resumed)
    session.start(Connector(session.core, address.servers, dial, clock, random, access.tls))
    return session


class ZooKeeperSession:
    """One session; `connect_zookeeper` creates it and describes the arguments. Methods as in `backend.Coordination`."""

    def __init__(self, root: Root, timeout_ms: int, key: SessionKey, digest: bytes | None, in_flight_max: int) -> None:
        notify = self._established, self._suspended, self._end
        self.core = SessionCore(timeout_ms, key, root.chroot, digest, in_flight_max, *notify)
        self._root = root
        self._then: Then | None = None
        self._on_lost: Callback | None = None
        self._on_suspended: Callback | None = None
        self._on_resumed: Callback | None = None
        self._connector: Connector

    def register_callbacks(
        self, then: Then, on_lost: Callback | None, on_suspended: Callback | None, on_resumed: Callback | None
    ) -> None:
        """Set the callbacks; before `start`."""
        self._then, self._on_lost, self._on_suspended, self._on_resumed = then, on_lost, on_suspended, on_resumed

    def start(self, connector: Connector) -> None:
        """Begin the first attempt to connect."""
        self._connector = connector
        connector.connect()

    @property
    def session_id(self) -> int:
        """The owner of this session's ephemeral nodes; 0 before it is established."""
        return self.core.key.session_id

    @property
    def last_zxid(self) -> int:
        """The last change of the tree that the session has seen, 0 before its first response."""
        return self.core.last_zxid

    @property
    def key(self) -> SessionKey:
        """The id and the password that continue this session; the password is a secret."""
        return self.core.key

    @property
    def timeout_ms(self) -> int:
        """The session timeout; the server has chosen it once the session is established."""
        return self.core.timeout_ms

    @property
    def lost(self) -> bool:
        """Whether the session is over."""
        return self.core.state in (State.CLOSING, State.ENDED)

    @property
    def suspended(self) -> bool:
        """Whether the session has no usable connection."""
        return self.core.state is State.SUSPENDED

    def get(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(data, Stat) of a node."""
        self._read(records.GetDataRequest, path, then, watch)

    def exists(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """Stat of a node, or None."""
        self._read(records.ExistsRequest, path, then, watch)

    def children(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(names of the children in order, Stat) of a node."""
        self._read(records.GetChildren2Request, path, then, watch)

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Create a node; `then` receives a `CreatedNode`.

        Arguments: as of `Coordination.create`.
        """
        self._change(Create(path, data, ephemeral, sequence), then)

    def set(self, path: str, data: bytes, then: Then, version: int = ANY_VERSION) -> None:
        """Replace a node's data if it has this version; the new Stat."""
        self._change(Set(path, data, version), then)

    def delete(self, path: str, then: Then, version: int = ANY_VERSION) -> None:
        """Remove a node if it has this version; None."""
        self._change(Delete(path, version), then)

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        """Execute all operations or none; a list with `CreatedNode`, Stat or None for each."""

        def finish(error: int, response: Any) -> Outcome:
            if error:
                return Outcome(error=error_of(error))
            try:
                return Outcome(self._root.results(operations, response))
            except CoordinationError as failure:
                return Outcome(error=failure)

        self._submit(lambda: records.MultiRequest(self._root.requests(operations)), "", finish, then, False)

    def create_chroot(self, then: Then) -> None:
        """Create the chroot and the nodes above it where they are missing, with the session's access control lists.

        Nothing is created where the chroot exists: ZooKeeper refuses a create below a node that is closed for this
        session, also of a node that exists.
        """
        names = self._root.chroot.split("/")[1:]
        root = self._root._replace(chroot="")
        paths = ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]

        def found(outcomes: list[Outcome]) -> None:
            if not paths or outcomes[-1].value is not None:
                then(Outcome())
            elif failed := [each for each in outcomes if each.error]:
                then(failed[0])
            else:
                missing = [path for path, each in zip(paths, outcomes, strict=True) if each.value is None]
                gather([partial(self._change, Create(path), root=root) for path in missing], created)

        def created(outcomes: list[Outcome]) -> None:
            failed = [each for each in outcomes if each.error and not isinstance(each.error, NodeExistsError)]
            then(failed[0] if failed else Outcome())

        gather([partial(self._read, records.ExistsRequest, path, root=root) for path in paths], found)

    def close(self, then: Then) -> None:
        """End the session. ConnectionLossError: it was suspended, and ends on the server with its timeout."""
        self.core.close(then)
        if self.core.state is State.ENDED:
            self._connector.stop()
            if self._then is not None:
                self.core.complete(self._end, SessionExpiredError(detail="closed before it was established"))
        self._deliver()

    def stop(self) -> None:
        """End the connection and all attempts, and leave the session to its timeout or to another holder of `key`."""
        self._connector.stop()

    # Requests.

    def _read(
        self, request_type: Any, path: str, then: Then, watch: Watcher | None = None, root: Root | None = None
    ) -> None:
        convert, watch_type = READS[request_type]

        def finish(error: int, response: Any) -> Outcome:
            absent = error == NoNodeError.code and request_type is records.ExistsRequest
            if error and not absent:
                return Outcome(error=error_of(error, path))
            if watch is not None:
                self.core.watches.add(EXIST if absent else watch_type, path, watch)
            return Outcome(None if absent else convert(response))

        server_path = (root or self._root).server_path
        self._submit(lambda: request_type(server_path(path), watch is not None), path, finish, then, True)

    def _change(self, operation: Operation, then: Then, root: Root | None = None) -> None:
        def finish(error: int, response: Any) -> Outcome:
            if error:
                return Outcome(error=error_of(error, operation.path))
            return Outcome(self._root.result(response))

        self._submit(lambda: (root or self._root).request(operation), operation.path, finish, then, False)

    def _submit(self, make: Callable[[], Any], path: str, finish: Finish, then: Then, repeatable: bool) -> None:
        try:
            self.core.call(make(), path, finish, then, repeatable=repeatable)
        except BadArgumentsError as error:
            self.core.complete(then, Outcome(error=error))
        self._deliver()

    def _deliver(self) -> None:
        self._connector.schedule()
        self.core.deliver()

    # Changes of the state; called by the core.

    def _established(self) -> None:
        self._connector.established()
        then, self._then = self._then, None
        if then is not None:
            then(Outcome(self))
        elif self._on_resumed is not None:
            self._on_resumed()

    def _suspended(self) -> None:
        if self._on_suspended is not None:
            self._on_suspended()

    def _end(self, error: CoordinationError) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(Outcome(error=error))
        elif self._on_lost is not None:
            self._on_lost()
