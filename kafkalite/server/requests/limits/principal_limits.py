"""The limits of what one principal holds at a broker (`kafkalite.principal.max.*`).

1. A client without authentication is the principal `User:ANONYMOUS`. Super users have no limits, nor have the
   listeners between brokers if clients have another one.
2. A connection above the limit is closed after its login. A fetch session above it is not opened, and the client
   fetches without one. What would create one more producer id, transactional id or group fails with POLICY_VIOLATION.
   Connections whose requests hold more memory than the share of their principal are not read until some is free.
3. Group ids and transactional ids longer than NAME_MAX cannot be created where they have a limit.
4. Counts begin with the start of the broker. Groups and transactional ids are counted at their coordinator; those of a
   shard that is loading, or that another broker has, are not. So are groups that CreateGroup creates through another
   broker: its coordinator does not know the principal, and the other broker does not know when the group ends.
5. A refusal, or a pause, is logged once a minute for each limit.
"""

import logging
from typing import Any, Protocol

from kafkalite._speedups.codec import decode
from kafkalite._speedups.net.framing import Connection
from kafkalite.clock import Clock
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.metrics import Registry
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.requests.authorization.refusals import refuse_in_steps
from kafkalite.server.requests.authorization.table import TABLE
from kafkalite.server.requests.call import Call
from kafkalite.server.requests.limits.limited_names import NAME_MAX, LimitedNames
from kafkalite.server.requests.limits.memory_shares import MemoryShares
from kafkalite.slicing import Slicer
from kafkalite.state.quotas.holdings import Exists, Holdings, IssuedIds

OFFSET_COMMIT, INIT_PRODUCER_ID, CREATE_GROUP = 8, 22, 10001
CREATES_GROUP = (OFFSET_COMMIT, 11, 28, 68, CREATE_GROUP, 10003)  # and JoinGroup to RegisterConsumer
PREFIX = "kafkalite.principal.max."
QUEUED_BYTES = "queued.request.bytes"


class Coordinators(Protocol):
    """The groups or the transactional ids of a broker."""

    def exists(self, name: str) -> bool | None:
        """Whether there is a name; None: its shard is not here, or loading."""


class LimitedBroker(Protocol):
    """The broker that the limits are for."""

    config: BrokerConfig
    clock: Clock
    metrics: Registry
    slicer: Slicer

    @property
    def groups(self) -> Coordinators: ...
    @property
    def transactions(self) -> Coordinators: ...


class PrincipalLimits:
    """The limits of each principal.

    Arguments:
        broker: its clock, configuration, coordinators and metrics.
        log: for refusals.

    Attributes:
        fetch_sessions: counts the sessions; None = they have no limit.
    """

    def __init__(self, broker: LimitedBroker, log: RateLimitedLog) -> None:
        config = broker.config
        exempt = config.super_users
        limits = {
            "connections": config.kafkalite_principal_max_connections,
            "fetch.sessions": config.kafkalite_principal_max_fetch_sessions,
            "groups": config.kafkalite_principal_max_groups,
            "transactional.ids": config.kafkalite_principal_max_transactional_ids,
            "producer.ids": config.kafkalite_principal_max_producer_ids,
            QUEUED_BYTES: config.kafkalite_principal_max_queued_request_bytes,
        }
        self._broker = broker
        self._log = log
        self._exempt_listeners = config.exempt_listeners
        self._connections: Holdings[Connection] | None = holdings(limits["connections"], exempt)
        self.fetch_sessions: Holdings[int] | None = holdings(limits["fetch.sessions"], exempt)
        self._groups = self._names(limits["groups"], lambda name: broker.groups.exists(name))
        transactional = limits["transactional.ids"]
        self._transactional_ids = self._names(transactional, lambda name: broker.transactions.exists(name))
        issued = limits["producer.ids"]
        self._producer_ids = IssuedIds(issued, exempt, self._kept_ms) if issued else None
        queued = limits[QUEUED_BYTES]
        self._memory = MemoryShares(queued, exempt, self._report_full_share) if queued else None
        self._limits = limits
        metric = "kafkalite_principal_refusals_total"
        text = "What was refused, or not read for a time, because of a limit of its principal."
        self._refusals = {name: broker.metrics.counter(metric, text, limit=name) for name in limits}

    def _names(self, limit: int, exists: Exists) -> LimitedNames | None:
        return LimitedNames(limit, self._broker.config.super_users, exists, self._broker) if limit else None

    def is_exempt(self, connection: Connection) -> bool:
        """Whether a connection has no limits, whatever its principal."""
        return connection.listener in self._exempt_listeners

    # Connections.

    def admits(self, connection: Connection) -> bool:
        """Count a connection whose principal is known now; returns whether the limit admits it."""
        if self.is_exempt(connection):
            return True
        principal = principal_of(connection)
        if self._connections is not None and not self._connections.acquire(principal, connection):
            return self._refuse("connections", principal)
        if self._memory is not None:
            self._memory.add(principal, connection)
        return True

    def disconnected(self, connection: Connection) -> None:
        """A connection is closed."""
        if self._connections is not None:
            self._connections.release(connection)
        if self._memory is not None:
            self._memory.disconnected(principal_of(connection))

    # Requests.

    def refuses(self, call: Call[Any], request: Any) -> bool:
        """Answer a request that exceeds a limit; returns whether it does."""
        key = call.header.api_key
        if key not in CREATES_GROUP and key != INIT_PRODUCER_ID:
            return False
        if key == CREATE_GROUP and request.coordinator_only:  # of a broker, or its handler closes the connection
            return False
        if self.is_exempt(call.connection) or self._is_admitted(call, request):
            return False
        if key == OFFSET_COMMIT and hasattr(request, "offsets"):  # packed
            from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest

            request = decode(OffsetCommitRequest, call.version, call.header.body, exact=False)
        error = KafkaErrorCode.POLICY_VIOLATION
        steps = refuse_in_steps(call.response_type, call.version, request, error, TABLE[key])
        topics = () if call.large is not None else getattr(request, "topics", ())
        call.answer_from(steps, sum(len(getattr(topic, "partitions", ())) for topic in topics))
        return True

    def count_producer_id(self, connection: Connection) -> None:
        """Count a producer id without a transactional id that is being issued to the client of a connection."""
        if self._producer_ids is not None and not self.is_exempt(connection):
            self._producer_ids.acquire(principal_of(connection), self._now_ms())

    def uncount_producer_id(self, connection: Connection) -> None:
        """The producer id that was counted last is not issued."""
        if self._producer_ids is not None and not self.is_exempt(connection):
            self._producer_ids.give_back(principal_of(connection))

    def _is_admitted(self, call: Call[Any], request: Any) -> bool:
        principal = principal_of(call.connection)
        if call.header.api_key != INIT_PRODUCER_ID:
            return self._may_create("groups", self._groups, principal, request.group_id)
        if request.transactional_id is None:
            ids = self._producer_ids
            return ids is None or ids.has_space(principal, self._now_ms()) or self._refuse("producer.ids", principal)
        return self._may_create("transactional.ids", self._transactional_ids, principal, request.transactional_id)

    def _may_create(self, limit: str, names: LimitedNames | None, principal: Principal, name: str) -> bool:
        if names is None:
            return True
        if names.is_too_long(principal, name):
            text = "%s: a new name of %d characters is refused, the maximum with %s is %d"
            self._log_refusal(limit, text, principal, len(name), PREFIX + limit, NAME_MAX)
            return False
        return names.acquire(principal, name) or self._refuse(limit, principal)

    def _kept_ms(self) -> int:
        return self._broker.config.producer_id_expiration_ms  # it is dynamic

    def _now_ms(self) -> int:
        return int(self._broker.clock.monotonic() * 1000)

    def _refuse(self, limit: str, principal: Principal) -> bool:
        text = "%s has %d %s, the limit (%s): a further one is refused"
        self._log_refusal(limit, text, principal, self._limits[limit], limit.replace(".", " "), PREFIX + limit)
        return False

    def _report_full_share(self, principal: Principal) -> None:
        text = "requests of %s hold %d bytes, its limit (%s): its connections are not read until memory is free"
        self._log_refusal(QUEUED_BYTES, text, principal, self._limits[QUEUED_BYTES], PREFIX + QUEUED_BYTES)

    def _log_refusal(self, limit: str, text: str, *arguments: object) -> None:
        self._refusals[limit].add()
        self._log(logging.WARNING, limit, text, *arguments)


def holdings(limit: int, exempt: tuple[Principal, ...]) -> Holdings[Any] | None:
    """Return the holdings of a limit; None = there is no limit."""
    return Holdings(limit, exempt) if limit else None


def principal_of(connection: Connection) -> Principal:
    """Return the principal of a connection."""
    principal: Principal = connection.principal or ANONYMOUS
    return principal
