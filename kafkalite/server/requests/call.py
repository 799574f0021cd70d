"""Defines `Call`: one request that is being served, what its handler may use, and how it is answered."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from kafkalite._speedups.codec import RequestHeader, encode_parts, response_header
from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.callbacks import Completion
from kafkalite.clock import Outcome
from kafkalite.model import ANONYMOUS, Node
from kafkalite.server.requests import context
from kafkalite.server.requests.deferred_free import empty_request
from kafkalite.server.requests.response_arrays import ResponseArray
from kafkalite.slicing import Steps, finish, group_steps

if TYPE_CHECKING:  # imported with an authorizer, or with quotas
    from kafkalite.cluster.changes import Refusal
    from kafkalite.server.requests.authorization.decision_cache import KeptAuthorization
    from kafkalite.server.requests.quotas.charge import Charge
    from kafkalite.server.security.audit_log import AuditLog

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")
Context = TypeVar("Context", bound=context.CallContext, covariant=True)
OBJECTS_MAX = 500  # that one request touches at once; each takes some 1 to 10 us


class Call(Generic[Context]):
    """A request that is being served.

    Attributes:
        context: what the handler may use of the broker.
        reply: the pending response of the connection.
        response_type: the message class of the response.
        version: of the request and the response.
        header: of the request.
        large: the request, where it has so many elements that it is freed in slices; else None.
        authorization: what its principal may do; None: there is no authorizer, so it may do everything.
        refused: entries that were refused before the handler runs, and the array of the response that gets them.
        charge: what the request is charged; None: no client quota limits its client.

    A handler returns the response, or None after it has kept the call to `answer` it later. A kept call is continued in
    a callback made by `guard`, or `fail` is called with any exception: no caller would end the request.
    """

    __slots__ = ("context", "failed", "header", "large", "reply", "response_type", "version")
    charge: "Charge | None" = None

    # Attributes of each `AuthorizedCall`.
    authorization: "KeptAuthorization | None" = None
    refused: tuple[str, list[Any]] | None = None

    def __init__(
        self, context: Context, reply: Reply, response_type: type[Any], version: int, header: RequestHeader
    ) -> None:
        self.context = context
        self.reply = reply
        self.response_type = response_type
        self.version = version
        self.header = header
        self.failed = False
        self.large: Any = None

    @property
    def connection(self) -> Connection:
        connection: Connection = self.reply.connection
        return connection

    @property
    def client_id(self) -> str:
        """The client id, "" where the client sends none."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The address of the client as Kafka writes it: `/127.0.0.1`."""
        return f"/{self.connection.peer_host}"

    @property
    def own_node(self) -> Node:
        """This broker with the address at which the client reaches it."""
        return self.context.own_node(self.connection)

    def refuse_of_client(self, *, of_brokers: bool) -> bool:
        """Close the connection of a client that sends what only brokers send; returns whether it is one.

        `of_brokers`: whether only brokers send this request.
        """
        dispatcher = self.context.dispatcher
        if not of_brokers or dispatcher.is_between_brokers(self.reply):
            return False
        dispatcher.refuse_key(self.reply, self.header.api_key)
        return True

    def answer(self, response: Any) -> None:
        """Send the response, once per call. A closed connection is no error.

        A response that cannot be encoded closes the connection, and the encoder's exception is raised. A response after
        `fail` is dropped: other parts of the request may end later.
        """
        if self.refused is not None:
            self.add_refused(response)
        try:
            header = response_header(self.response_type, self.version, self.header.correlation_id)
            self.reply.send(encode_parts(response, self.version, header))
        except Exception:
            if self.failed:
                return
            self.reply.close("internal error: the answer cannot be encoded")
            raise

    def log_change(self, audit_log: "AuditLog", what: str, subject: str, text: str) -> None:
        """Write to the audit log that the client has changed something; arguments as of `AuditLog.record_change`."""
        connection = self.connection
        audit_log.record_change(connection.principal or ANONYMOUS, connection.peer_host, what, subject, text)

    def add_refused(self, response: Any) -> None:
        """Add the refused entries to the response; see `AuthorizedCall`."""
        raise NotImplementedError

    def answer_packed(self, encode: Callable[[int], bytes]) -> None:
        """Send the bytes that `encode` returns for a throttle time in ms."""
        self.reply.send(encode(0))

    def admit_mutations(
        self, asked: list[Item], _count: Callable[[Item], int], _strict_since: int | None
    ) -> "tuple[list[Item], list[tuple[Item, Refusal]]]":
        """Return which changes of topics the quota of the client admits, and the refused ones (KIP-599).

        Arguments:
            asked: the changes.
            _count: returns the number of partitions of a change; 0 = it is not charged.
            _strict_since: the version from which on clients know the error; they are throttled before, and always with
                None.
        """
        return asked, []

    def charge_steps(self, steps: Steps) -> Steps:
        """Return a generator of this request whose time is charged to the client: nothing to do without quotas."""
        return steps

    def add_refused_topics(self, _group: str, topics: list[Any]) -> list[Any]:
        """Return the topics of a group of an OffsetFetch with those that were refused: none without an authorizer."""
        return topics

    def elements(self) -> ResponseArray:
        """Return a collector for an array of the response; large arrays are encoded piece by piece."""
        return ResponseArray(self.response_type, self.version)

    def answer_from(self, steps: Steps, objects: int) -> None:
        """Send the response that the generator `steps` returns; as `in_slices`. It is the last use of the request."""
        self.in_slices(steps, objects, self.answer if self.large is None else self._answer_large)

    def _answer_large(self, response: Any) -> None:
        self.answer(response)
        self.context.slicer.run(empty_request(self.large), Outcome.result)

    def at_others(self, callback: Callable[Arguments, object]) -> Callable[Arguments, None]:
        """Pause the connection while other brokers work on this request: a client has one such request at a time.

        Returns the callback that continues the call; it is called once, and an exception in it ends the request.
        """
        self.reply.pause()
        guarded = self.guard(callback)

        def resumed(*args: Arguments.args, **named: Arguments.kwargs) -> None:
            self.reply.resume(pinned=False)
            guarded(*args, **named)

        return resumed

    def append_in_slices(self, steps: Steps, objects: int, then: Callable[[Any], object]) -> None:
        """Run steps that append, as `in_slices`; the appends are written before `then` is called."""
        if objects <= OBJECTS_MAX and self.large is None:
            then(finish(steps))
            return
        self.in_slices(self._flushing(steps), objects, then, changes=True)

    def _flushing(self, steps: Steps) -> Steps:
        result = yield from steps
        self.context.replicas.write_pending()  # no iteration writes what was appended
        return result

    def in_slices(self, steps: Steps, objects: int, then: Callable[[Any], object], *, changes: bool = False) -> None:
        """Run a generator of this request, over several loop iterations if it handles many objects.

        The connection serves its next request when `steps` has ended, so that it has one generator at a time: the
        memory of half-built responses and the connection's part of the slices do not grow with its pipeline.

        Arguments:
            steps: yields after each object. It is closed early when the connection closes.
            objects: estimated number of objects; more than OBJECTS_MAX, or a large request, are handled in slices.
            then: called with the return value of `steps`. An exception of either ends the request.
            changes: `steps` changes state, and runs to its end also when the connection closes.
        """
        if objects <= OBJECTS_MAX and self.large is None:
            then(finish(steps))
            return
        ended = self.guard(partial(self._sliced, then))
        self.reply.pause()
        job = self.context.slicer.run(self.charge_steps(group_steps(steps)), ended)
        if not job.ended:
            self.reply.in_progress = True
            self.reply.on_gone = None if changes else job.cancel

    def _sliced(self, then: Callable[[Any], object], outcome: Outcome) -> None:
        self.reply.on_gone = None
        self.reply.in_progress = False
        self.reply.resume(pinned=False)
        then(outcome.result())

    def guard(self, callback: Callable[Arguments, object]) -> Callable[Arguments, None]:
        """Wrap a callback that continues this call after its handler has returned; an exception ends the request."""

        def guarded(*args: Arguments.args, **named: Arguments.kwargs) -> None:
            try:
                callback(*args, **named)
            except Exception as error:
                self.fail(error)

        return guarded

    def completion(self, respond: Callable[[Any], Any], refuse: Callable[[int], Any]) -> Completion[Any]:
        """Return the completion of a group command that answers this call. An exception ends the request.

        Arguments:
            respond: returns the response for the result of the command, or None when it answers the call later.
            refuse: returns the response for a Kafka error code.
        """
        return Completion(partial(self._answer_with, respond), partial(self._answer_with, refuse))

    def _answer_with(self, respond: Callable[[Any], Any], result: object) -> None:
        try:
            response = respond(result)
            if response is not None:
                self.answer(response)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the request after an unexpected exception, as if its handler had raised it; never raises."""
        self.context.dispatcher.unforeseen(self, error)

    def no_response(self) -> None:
        """End the request without a response (Produce with acks=0)."""
        self.reply.skip()

    def close(self, reason: str) -> None:
        """Close the connection after the earlier responses have left."""
        self.reply.close(reason)


PlainCall = Call[context.CallContext]
ClusterCall = Call[context.ClusterContext]
AdminCall = Call[context.AdminContext]
UserCall = Call[context.UserContext]
TokenCall = Call[context.TokenContext]
TopicCall = Call[context.TopicContext]
PartitionCall = Call[context.PartitionContext]
TransactionCall = Call[context.TransactionContext]
GroupCall = Call[context.GroupContext]
GroupPartitionCall = Call[context.GroupPartitionContext]
MarkerCall = Call[context.MarkerContext]
CoordinatorCall = Call[context.CoordinatorCallContext]
ConfigCall = Call[context.ConfigContext]
ControllerCall = Call[context.ControllerCallContext]
