"""The requests that wait for one live broker: at most one entry per partition and type of request, without its content.

1. A broker has at most one request in flight. The content of a request is built when it is sent, from the newest state
   of each partition, so no state follows a newer one.
2. A failed request returns its entries, unless newer ones wait, and is repeated after a back-off.
3. A broker that registers again gets a new channel, which begins with all metadata and all hosted partitions.
4. The types alternate while several wait; otherwise LeaderAndIsr precedes UpdateMetadata, as in Kafka.

A `full` LeaderAndIsr promises that the broker hosts nothing else. It is due once per channel and whenever a topic was
lost, and is sent once the state of every partition that the broker may host is known: until then, all partitions are
sent without the promise.

StopReplica names topics only. So a log is deleted after the broker has accepted the partition with its topic id: by
that it has renamed a log of an earlier topic of this name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from kafkalite.model import TopicPartition
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.values import Broker

RETRY = "retry"  # first part of the names of the timers
OFFLINE = "offline"  # first part of the names of the timers that try failed replicas again
LOG_MS = 60_000  # between two lines about the same failure
LOGGED_MAX = 16
Signature = tuple[Topic, int, int] | None  # of a topic and its states; None = it does not exist


class Sent(Protocol):
    """The content of a request for one topic."""

    @property
    def topic(self) -> str: ...


class RequestType(Enum):
    """The requests of a controller, in Kafka's order."""

    LEADER_AND_ISR = 0
    UPDATE_METADATA = 1
    STOP_REPLICA = 2


AFTER = {
    RequestType.LEADER_AND_ISR: (RequestType.UPDATE_METADATA, RequestType.STOP_REPLICA, RequestType.LEADER_AND_ISR),
    RequestType.UPDATE_METADATA: (RequestType.STOP_REPLICA, RequestType.LEADER_AND_ISR, RequestType.UPDATE_METADATA),
    RequestType.STOP_REPLICA: tuple(RequestType),
}
BEFORE = {following[0]: request_type for request_type, following in AFTER.items()}


class Stop(NamedTuple):
    """A replica to stop. `topic`: the incarnation of the topic, as its name may exist again."""

    topic: Topic
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request in flight, with what it must return to its channel if it fails.

    Arguments:
        all: whether it has all partitions, of the receiver or of the cluster.
        full: whether it is a full LeaderAndIsr.
        leadership: the partitions of a LeaderAndIsr request, with whether they are new.
        metadata: the partitions of an UpdateMetadata request, unless it has all.
        stops: the replicas of a StopReplica request.
        topics: the topics of the partitions of a LeaderAndIsr request.
        led: the partitions with a leader in an UpdateMetadata request to this broker itself.
        sent: what it has of each topic.
    """

    request_id: int
    type: RequestType
    all: bool = False
    full: bool = False
    leadership: dict[TopicPartition, bool] = field(default_factory=dict)
    metadata: dict[TopicPartition, None] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    topics: dict[TopicPartition, Topic] = field(default_factory=dict)
    led: tuple[Partition, ...] = ()
    sent: Sequence[Sent] = ()


class Channel:
    """The pending requests of a broker.

    Attributes:
        broker: its registration.
        in_flight: the request without a response.
        last: type of the latest request; the first one is UpdateMetadata.
        blocked: whether it waits for the back-off.
        failures: consecutive failed requests.
        refusals: by type of request, consecutive responses that refuse partitions.
        brokers_changed: whether the live brokers must be sent.
        all_metadata, metadata: partitions for UpdateMetadata.
        all_leadership, leadership: partitions for LeaderAndIsr, with whether they are new.
        full_due: whether a full LeaderAndIsr is due.
        evaluate_full: whether partitions have changed since it was evaluated whether that is possible.
        stops: replicas for StopReplica.
        deferred_leadership, deferred_stops: those that the broker has refused; sent again after the back-off.
        accepted: the partitions that the broker has accepted, with the incarnation of their topic.
        offline: the partitions whose log directory failed, in the order in which they are tried again.
        suspects: the topics of a request that was rejected as a whole, by its type.
        rejected: the topics that are left out.
        logged: when each failure was logged, in ms.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.in_flight: InFlight | None = None
        self.last = RequestType.LEADER_AND_ISR
        self.blocked = False
        self.failures = 0
        self.refusals = dict.fromkeys(RequestType, 0)
        self.brokers_changed = True
        self.all_metadata = True
        self.metadata: dict[TopicPartition, None] = {}
        self.all_leadership = True
        self.full_due = True
        self.evaluate_full = False
        self.leadership: dict[TopicPartition, bool] = {}
        self.stops: dict[TopicPartition, Stop] = {}
        self.deferred_leadership: dict[TopicPartition, bool] = {}
        self.deferred_stops: dict[TopicPartition, Stop] = {}
        self.accepted: dict[TopicPartition, Topic] = {}
        self.offline: dict[TopicPartition, None] = {}
        self.suspects: dict[RequestType, list[str]] = {}
        self.rejected: dict[str, Signature] = {}
        self.logged: dict[str, int] = {}

    @property
    def idle(self) -> bool:
        """Whether a request may be sent now."""
        return self.in_flight is None and not self.blocked

    def logs(self, failure: str, now_ms: int) -> bool:
        """Whether a failure is logged: once a minute."""
        if now_ms - self.logged.get(failure, -LOG_MS) < LOG_MS:
            return False
        if len(self.logged) >= LOGGED_MAX:
            self.logged.clear()
        self.logged[failure] = now_ms
        return True

    def lead(self, key: TopicPartition, *, is_new: bool) -> None:
        """Send the leader and ISR of a partition."""
        self.leadership[key] = is_new or self.leadership.get(key, False)

    def stop(self, key: TopicPartition, stop: Stop) -> None:
        """Stop a replica, and delete its log if so requested."""
        self.stops[key] = stop

    def waits_for(self, request_type: RequestType) -> bool:
        """Whether a request of this type has something to send."""
        if request_type in self.suspects:
            return True
        if request_type is RequestType.LEADER_AND_ISR:
            return self.all_leadership or bool(self.leadership)
        if request_type is RequestType.UPDATE_METADATA:
            return self.brokers_changed or self.all_metadata or bool(self.metadata)
        return bool(self.stops)

    def restore(self, request: InFlight) -> None:
        """Return the entries of a failed request, and begin with its type. Newer entries have precedence."""
        self.last = BEFORE[request.type]
        if request.type is RequestType.UPDATE_METADATA:
            self.brokers_changed = True
            self.all_metadata = self.all_metadata or request.all
            self.metadata = request.metadata | self.metadata
        elif request.type is RequestType.LEADER_AND_ISR:
            self.all_leadership = self.all_leadership or request.all
            self.full_due = self.full_due or request.full
            self.restore_leadership(request.leadership)
        else:
            self.stops = request.stops | self.stops

    def restore_leadership(self, leadership: dict[TopicPartition, bool]) -> None:
        """Send these partitions again; one that was new still is."""
        for key, is_new in leadership.items():
            self.lead(key, is_new=is_new)

    def restore_deferred(self) -> None:
        """The back-off has ended."""
        self.blocked = False
        self.restore_leadership(self.deferred_leadership)
        self.stops = self.deferred_stops | self.stops
        self.deferred_leadership, self.deferred_stops = {}, {}
