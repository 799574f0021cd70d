"""Decodes request frames and calls their handlers, by the table of API keys in `api.py`.

- An unknown key, an unsupported version or a body that does not parse closes the connection with one log line, as in
  Kafka; only ApiVersions of an unknown version is answered (v0, error 35, its own range).
- A key that only brokers send is an unknown key on the other listeners: it is neither served nor advertised there.
- An unexpected exception in a handler, or later in a callback of a call that it kept, is answered with
  UNKNOWN_SERVER_ERROR where the response has a top-level error code, and closes the connection elsewhere. An idempotent
  producer ends with that code, so InitProducerId has one that is repeated. One traceback per source line and minute is
  logged.
"""

import logging
from collections.abc import Generator, Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite._speedups.codec import RequestHeader, read_request_header
from kafkalite._speedups.codec.incremental_decoder import IncrementalDecoder
from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.clock import Outcome, outcome_of
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import DecodeError, KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsResponse
from kafkalite.rate_limited_log import RateLimitedLog, site_of
from kafkalite.server.requests.api import Row
from kafkalite.server.requests.call import Call
from kafkalite.server.requests.context import HandlerContext
from kafkalite.state.fetch_sessions import FetchSessions

if TYPE_CHECKING:  # imported with the first limit of principals, or quota
    from kafkalite.server.requests.limits.principal_limits import PrincipalLimits
    from kafkalite.server.requests.quotas.broker_quotas import BrokerQuotas

LOGGER = logging.getLogger("kafkalite.server")
REQUESTS = logging.getLogger("kafkalite.requests")
CONNECTIONS = logging.getLogger("kafkalite.connections")
PRODUCE = 0
API_VERSIONS = 18
INIT_PRODUCER_ID = 22
# Fetch, LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, OffsetForLeaderEpoch, AddPartitionsToTxn,
# WriteTxnMarkers, AlterPartition: brokers send these, and other requests wait for them.
AWAITED = frozenset({1, 4, 5, 6, 7, 23, 24, 27, 56})
ELEMENTS_MAX = 201_000  # 100,000 partitions, each in its own topic, and other elements


UNKNOWN = KafkaErrorCode.UNKNOWN_SERVER_ERROR
UNFORESEEN = {INIT_PRODUCER_ID: KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS}  # as RPCProducerIdManager
LIMITS = frozenset({"array length", "tag count"})  # of `DecodeError.kind`
ELEMENTS_AT_ONCE = 5_000  # are decoded in one go, in about 2 ms; more in steps
STEPS_AT_ONCE = 250


class Dispatcher:
    """Serves request frames.

    Arguments:
        context: what the handlers use.
        rows: the served API keys.
        log: for refused requests and exceptions.
        between_brokers: names of the listeners that serve the keys that only brokers send.

    Attributes:
        limits: of what one principal holds; None = there are none.
        quotas: what requests are charged to, see `limit_clients`; None: no quota limits a client.
    """

    def __init__(
        self, context: HandlerContext, rows: tuple[Row, ...], log: RateLimitedLog, between_brokers: Iterable[str] = ()
    ) -> None:
        self.rows = rows
        self._for_clients = tuple(row for row in rows if not row.between_brokers)
        self._between_brokers = frozenset(between_brokers)
        self._context = context
        self._by_key = {row.api_key: row for row in rows}
        self._loaded: dict[int, Row] = {}  # those that were requested
        self._log = log
        self._checks: Any = None
        self.limits: PrincipalLimits | None = None
        self.quotas: BrokerQuotas | None = None
        self._throttled_call: Any = None

    def request(self, reply: Reply, frame: memoryview) -> None:
        """Serve one frame; the reply is completed now or kept by the handler's call."""
        try:
            header = read_request_header(frame)
        except DecodeError as error:
            self._refuse(reply, "header", f"request header does not parse: {error}")
            return
        row = self._loaded.get(header.api_key) or self._not_loaded(reply, header, frame)
        if row is None:
            return
        version = header.api_version
        if not row.version_min <= version <= row.version_max:
            self._refuse_version(reply, row, header)
            return
        try:
            request = row.decode(row.request, version, header.body, False, ELEMENTS_AT_ONCE)
        except DecodeError as error:
            self._not_decoded(reply, row, header, error)
        else:
            self._handle(self._new_call(reply, row, version, header), row, request)

    def limit_clients(self, quotas: "BrokerQuotas | None") -> None:
        """Charge the requests of clients that quotas limit; None = no quota limits a client."""
        if quotas is not None and self._throttled_call is None:
            self._throttled_call = import_module("kafkalite.server.requests.quotas.throttled_call").throttled_call
        self.quotas = quotas

    def forget_loaded(self) -> None:
        """Compare the next request of each key with the level of the logger `kafkalite.requests`."""
        self._loaded.clear()

    def rows_on(self, listener: str) -> tuple[Row, ...]:
        """Return the API keys that are served on a listener."""
        return self.rows if listener in self._between_brokers else self._for_clients

    def is_between_brokers(self, reply: Reply) -> bool:
        """Whether a request came over a listener between brokers."""
        return reply.connection.listener in self._between_brokers

    def refuse_key(self, reply: Reply, key: int) -> None:
        """Close a connection that sent a key, or a variant of a request, which is not served on its listener."""
        self._refuse(reply, "key", f"request key {key} is not served")

    def _not_loaded(self, reply: Reply, header: RequestHeader, frame: memoryview) -> Row | None:
        """Return the row of a key that is not among the loaded ones, if it may be served now. Else import what the key
        needs, and serve its first request then, or close the connection.

        Keys of brokers are never in the table, so that no other request is compared with the listener. Other keys are
        not while requests are logged, so that no other request is compared with a level.
        """
        row = self._by_key.get(header.api_key)
        if row is None or (row.between_brokers and not self.is_between_brokers(reply)):
            self.refuse_key(reply, header.api_key)
        elif row.loaded:
            if REQUESTS.isEnabledFor(logging.DEBUG):
                log_request(reply, row, header, len(frame))
            elif not row.between_brokers:
                self._loaded[row.api_key] = row
            return row
        else:
            self._first_of_key(row, reply, header, frame)
        return None

    def _first_of_key(self, row: Row, reply: Reply, header: RequestHeader, frame: memoryview) -> None:
        """Import what a key needs, over several loop iterations where it is much, and serve its first request then.

        As for `_decode_in_steps`, the requests behind it wait, and a frame that is used after this iteration is copied.
        """
        if row.loaded or not row.of_groups:
            self._row_loaded(row, reply, frame, outcome_of(row.load, ()))
        else:
            copy = memoryview(bytearray(frame))
            header.release()
            reply.pause()
            job = self._context.slicer.run(row.load_in_steps(), partial(self._row_loaded_in_steps, row, reply, copy))
            if not job.ended:
                reply.in_progress = True
                reply.on_gone = job.cancel

    def _row_loaded_in_steps(self, row: Row, reply: Reply, frame: memoryview, outcome: Outcome) -> None:
        reply.on_gone = None
        reply.in_progress = False
        reply.resume(False)
        self._row_loaded(row, reply, frame, outcome)
        self._context.replicas.write_pending()  # no loop iteration writes what it appends

    def _row_loaded(self, row: Row, reply: Reply, frame: memoryview, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._log(logging.ERROR, f"import {row.name}", "%s cannot be served", row.name, exc_info=outcome.error)
            reply.close("internal error")
            return
        self.request(reply, frame)

    def _not_decoded(self, reply: Reply, row: Row, header: RequestHeader, error: DecodeError) -> None:
        if error.kind in LIMITS and len(header.body) > ELEMENTS_AT_ONCE:
            self._decode_in_steps(reply, row, header.api_version, header)
        else:
            self._refuse_body(reply, row, header.api_version, error)

    def _decode_in_steps(self, reply: Reply, row: Row, version: int, header: RequestHeader) -> None:
        """Decode a large request over several loop iterations; the requests behind it wait, so all keep their order.

        The frame is used again after this iteration, so it is copied; the copy counts as request memory until then.
        """
        body = bytearray(header.body)  # writable, as logs patch batches in place
        header.release()
        call = self._new_call(reply, row, version, header)
        reply.pause()
        steps = call.charge_steps(decoding(row, version, body))
        job = self._context.slicer.run(steps, call.guard(partial(self._decoded, call, row)))
        if not job.ended:
            reply.in_progress = True
            reply.on_gone = job.cancel

    def _decoded(self, call: Call[Any], row: Row, outcome: Outcome) -> None:
        reply = call.reply
        reply.on_gone = None
        reply.in_progress = False
        reply.resume(row.api_key == PRODUCE)
        if isinstance(outcome.error, DecodeError):
            self._refuse_body(reply, row, call.version, outcome.error)
        else:
            call.large = outcome.result()
            self._handle(call, row, call.large)
            self._context.replicas.write_pending()  # no loop iteration writes what it appends

    def _new_call(self, reply: Reply, row: Row, version: int, header: RequestHeader) -> Call[Any]:
        context = self._context
        quotas = self.quotas
        if quotas is not None and quotas.limits(reply.connection, header.client_id):
            throttled: Call[Any] = self._throttled_call(quotas, context, reply, row.response, version, header)
            return throttled
        if context.authorizer is None:
            return Call(context, reply, row.response, version, header)
        call: Call[Any] = self._authorizing().new_call(context, reply, row.response, version, header)
        return call

    def _authorizing(self) -> Any:
        """Return the module `checks`, which only a broker with an authorizer imports."""
        if self._checks is None:
            self._checks = import_module("kafkalite.server.requests.authorization.checks")
        return self._checks

    def _handle(self, call: Call[Any], row: Row, request: Any) -> None:
        try:
            if type(call) is Call:  # neither a quota limits the client nor is there an authorizer
                self._serve(call, row, request)
                return
            if call.charge is not None:
                call.charge.begin(row, request, between_brokers=self.is_between_brokers(call.reply))
            if call.authorization is None:
                self._serve(call, row, request)
            elif call.large is not None:
                self._authorizing().check_large(call, request, partial(self._serve, call, row))
            else:
                remaining = self._authorizing().check(call, request)
                if remaining is not None:
                    self._serve(call, row, remaining)
            if call.charge is not None:
                call.charge.pause()
        except Exception as error:
            self.unforeseen(call, error)

    def _serve(self, call: Call[Any], row: Row, request: Any) -> None:
        if self.limits is not None and self.limits.refuses(call, request):
            return
        response = row.handler(call, request)
        if response is not None:
            call.answer(response)
        else:
            call.header.release()

    def _refuse_version(self, reply: Reply, row: Row, header: RequestHeader) -> None:
        if row.api_key != API_VERSIONS:
            self._refuse(reply, row.name, f"{row.name} v{header.api_version} is not served")
            return
        own = ApiVersionsResponse.ApiVersion(
            api_key=row.api_key, min_version=row.version_min, max_version=row.version_max
        )
        call = Call(self._context, reply, row.response, 0, header)
        call.answer(ApiVersionsResponse(error_code=KafkaErrorCode.UNSUPPORTED_VERSION, api_keys=[own]))

    def _refuse_body(self, reply: Reply, row: Row, version: int, error: DecodeError) -> None:
        self._refuse(reply, row.name, f"{row.name} v{version} does not parse: {error}")

    def _refuse(self, reply: Reply, site: str, reason: str) -> None:
        peer = reply.connection
        self._log(
            logging.WARNING, f"refuse {site}", "%s:%d: %s; connection closed", peer.peer_host, peer.peer_port, reason
        )
        reply.close(reason)

    def unforeseen(self, call: Call[Any], error: Exception) -> None:
        """Log an unexpected exception of a handler, and answer with an error where this version has a top-level error
        code.
        """
        name = call.response_type.__name__.removesuffix("Response")
        site = f"unforeseen {name} {site_of(error)}"
        self._log(logging.ERROR, site, "%s v%d failed", name, call.version, exc_info=error)
        if call.reply.done:
            return
        if call.response_type.has_error_code(call.version):
            call.answer(call.response_type(error_code=UNFORESEEN.get(call.header.api_key, UNKNOWN)))
        else:
            call.close("internal error")
        call.failed = True


class Authentication(Protocol):
    """Lets connections authenticate; `server.authentication` has the methods."""

    def admit(self, connection: Connection) -> bool: ...
    def disconnected(self, connection: Connection) -> None: ...
    def request(self, reply: Reply, frame: memoryview) -> None: ...


class BrokerService:
    """The broker as the connection layer sees it: connections open and close, frames are served, an iteration ends."""

    def __init__(
        self, dispatcher: Dispatcher, replicas: Replicas, heartbeats: Heartbeats, fetch_sessions: FetchSessions
    ) -> None:
        # Bound methods are handed through as they are: this is called for every request.
        self.request = dispatcher.request
        self._dispatcher = dispatcher
        self.write_pending = replicas.write_pending
        self.quick = heartbeats
        self.pinning = frozenset({PRODUCE})  # its records are views of the frame
        self.awaited = AWAITED
        self.connections = 0
        self._fetch_sessions = fetch_sessions
        self._authentication: Authentication | None = None

    def authenticate_with(self, authentication: Authentication) -> None:
        """Let clients authenticate on the listeners that require it; called before the first connection."""
        self._authentication = authentication
        self.request = authentication.request

    def connected(self, connection: Connection) -> bool:
        if self._authentication is not None and not self._authentication.admit(connection):
            return False
        self.connections += 1
        if connection.authenticated and not self.admits(connection):
            self.connections -= 1
            return False
        host, port = connection.peer_host, connection.peer_port
        CONNECTIONS.debug("%s:%d connected to %s; %d connections", host, port, connection.listener, self.connections)
        return True

    def admits(self, connection: Connection) -> bool:
        """Whether the limits of its principal, which is known now, admit a connection."""
        limits = self._dispatcher.limits
        return limits is None or limits.admits(connection)

    def disconnected(self, connection: Connection) -> None:
        self.connections -= 1
        if self._dispatcher.limits is not None:
            self._dispatcher.limits.disconnected(connection)
        host, port = connection.peer_host, connection.peer_port
        CONNECTIONS.debug("%s:%d disconnected: %s; %d connections", host, port, connection.reason, self.connections)
        self._fetch_sessions.disconnected(connection)
        if self._dispatcher.quotas is not None:
            self._dispatcher.quotas.muted.disconnected(connection)
        if self._authentication is not None:
            self._authentication.disconnected(connection)
        if connection.decisions is not None:
            connection.decisions.end()


def log_request(reply: Reply, row: Row, header: RequestHeader, size: int) -> None:
    """Log a request. Heartbeats of classic groups that change nothing are answered before they get here."""
    peer = reply.connection
    REQUESTS.debug(
        "%s:%d %s v%d, correlation id %d, client %r, %d bytes",
        peer.peer_host,
        peer.peer_port,
        row.name,
        header.api_version,
        header.correlation_id,
        header.client_id,
        size,
    )


def decoding(row: Row, version: int, body: bytearray) -> Generator[None, None, Any]:
    """Decode the body of a large request in steps."""
    decoder: IncrementalDecoder[Any] = IncrementalDecoder(row.request, version, body, False, ELEMENTS_MAX)
    while not decoder.advance(STEPS_AT_ONCE):
        yield
    return decoder.message
