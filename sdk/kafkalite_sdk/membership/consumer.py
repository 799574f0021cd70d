"""A member of a consumer group (KIP-848): heartbeats report what it owns, and receive what it should own.

Pure. The broker reconciles: the member first releases what its target assignment lacks, then reports what it owns, and
receives partitions that other members have released. Invariants:
1. One heartbeat is open at a time. During a revocation heartbeats go on, with the partitions that are still owned.
2. Partitions are reported as owned until the consumer has released them, and as soon as it has received them: an
   application that has not polled since would take over partitions that the broker has revoked meanwhile.
3. After an error or a lost response the next heartbeat repeats everything.
4. A fenced or unknown member loses its partitions, then joins with epoch 0 and its member id.
5. A topic that was deleted and created again has a new id: its partitions are lost, then assigned.
Sources: AbstractMembershipManager.java, ConsumerMembershipManager.java and ConsumerHeartbeatRequestManager.java of
Apache Kafka 4.3; rdkafka_cgrp.c of librdkafka.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.model import TopicPartition, uuid_text
from kafkalite.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite_sdk.membership.core import MemberCore
from kafkalite_sdk.membership.protocol import GroupProtocol, Reconsider
from kafkalite_sdk.membership.settings import CONSUMER, AssignmentChange, GroupCall, MemberIdentity
from kafkalite_sdk.membership.topics import metadata_of_ids

Code = KafkaErrorCode
OwnedTopic = ConsumerGroupHeartbeatRequest.TopicPartitions

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
REJECTED = (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID)
ANOTHER_PROTOCOL = (Code.GROUP_ID_NOT_FOUND, Code.INCONSISTENT_GROUP_PROTOCOL, Code.UNSUPPORTED_VERSION)
INSTANCE_RELEASE_FACTOR = 1.5  # sessions during which the previous process with this instance id may still be a member

JOINING, STABLE, RECONCILING, LOSING, LEAVING = "joining", "stable", "reconciling", "losing partitions", "leaving"
IN_GROUP = (STABLE, RECONCILING)

Owned = dict[TopicPartition, bytes]
"""Partitions with the ids of their topics."""


class ConsumerMember(GroupProtocol):
    """A member of a consumer group."""

    name = CONSUMER

    def __init__(self, core: MemberCore, reconsider: Reconsider) -> None:
        super().__init__(core, reconsider)
        self.state = JOINING
        self._member_id = uuid_text(bytes(core.random.randrange(256) for _ in range(16)))
        self._epoch = JOIN_EPOCH
        self._target: dict[bytes, frozenset[int]] | None = None
        self._owned: Owned = {}
        self._assigning: Owned = {}  # received, and not taken over yet
        self._interval_s = core.settings.heartbeat_interval_s
        self._heartbeat: GroupCall | None = None
        self._heartbeat_at = -inf
        self._send_all = True
        self._send_subscription = False
        self._send_owned = False
        self._lookup: GroupCall | None = None
        self._lookup_retries = core.retries()

    def step(self, now: float) -> None:
        if self.state in IN_GROUP:
            self._reconcile(now)
        if self._heartbeat is None and now >= self.retries.at and now >= self._due_at():
            self._send_heartbeat()

    def wake_at(self) -> float:
        looks_up = self._lookup is None and self.core.change is None and self._unknown_ids()
        lookup_at = self._lookup_retries.at if looks_up else inf
        heartbeat_at = max(self._due_at(), self.retries.at) if self._heartbeat is None else inf
        return min(lookup_at, heartbeat_at)

    def _due_at(self) -> float:
        """When the next heartbeat is due, apart from pauses after failures."""
        if self.state == JOINING:
            joins = self._server_pattern() is not None or self.core.wanted_topics is not None
            return -inf if joins and self.core.change is None else inf
        if self.state not in IN_GROUP:
            return inf
        return -inf if self._send_owned or self._send_subscription else self._heartbeat_at

    # heartbeats

    def _send_heartbeat(self) -> None:
        settings = self.core.settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=settings.instance_id,
        )
        if self._send_all:
            request.rack_id = settings.rack
            request.rebalance_timeout_ms = round(settings.max_poll_interval_s * 1000)
            request.server_assignor = settings.server_assignor
        if self._send_all or self._send_subscription:
            request.subscribed_topic_names = sorted(self.core.wanted_topics or ())
            pattern = self._server_pattern()
            request.subscribed_topic_regex = pattern if pattern is not None or self._epoch == JOIN_EPOCH else ""
        if self._send_all or self._send_owned:
            request.topic_partitions = _by_id(self._owned, self._assigning)
        self._send_all = self._send_subscription = self._send_owned = False
        self._heartbeat = self.core.send(request, self._answered, self._failed)

    def _server_pattern(self) -> str | None:
        """The pattern that the broker resolves, None = there is none, or the client resolves it."""
        subscription = self.core.subscription
        return subscription.pattern if subscription.excluded is None else None

    def _answered(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self._heartbeat = None
        if response.error_code:
            self._send_all = True
            self._rejected(response, now)
            return
        self.retries.succeeded()
        self.core.last_heartbeat = now
        self._interval_s = response.heartbeat_interval_ms / 1000
        self._heartbeat_at = now + self._interval_s
        self._member_id = response.member_id or self._member_id
        self._epoch = response.member_epoch
        self.core.identity = MemberIdentity(
            self.core.settings.group_id, self._epoch, self._member_id, self.core.settings.instance_id
        )
        if self.state == JOINING:
            self.state = STABLE
        if response.assignment is not None:
            self._target = {each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions}
        self._reconcile(now)

    def _rejected(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        code, joins = response.error_code, self._epoch == JOIN_EPOCH
        if code in REJECTED or (code == Code.GROUP_ID_NOT_FOUND and not joins):
            self._rejoin(now)
        elif code in ANOTHER_PROTOCOL:
            self.retries.failed(now)
            self.reconsider(error_for(code, response.error_message), now)
        elif code == Code.UNRELEASED_INSTANCE_ID and self._may_be_released(now):
            self.retries.failed(now)
        elif not self.retry_later(code, now):
            self.fail_with(code, now, response.error_message)

    def _may_be_released(self, now: float) -> bool:
        """Whether the process that had this instance id before may still be in its session."""
        return self.retries.failing_s(now) < INSTANCE_RELEASE_FACTOR * self.core.settings.session_timeout_s

    def _failed(self, error: KafkaError, now: float) -> None:
        self._heartbeat, self._send_all = None, True
        if isinstance(error, type(error_for(Code.UNSUPPORTED_VERSION))):
            self.reconsider(error, now)
            return
        self.lost_connection(error, now)

    # the assignment

    def _reconcile(self, now: float) -> None:
        """Move towards the target: release what it lacks, and take over what it adds, once its names are known."""
        if self._target is None or self.core.change is not None:
            return
        wanted: Owned = {
            TopicPartition(name, number): topic_id
            for topic_id, numbers in self._target.items()
            if (name := self.core.topics.name_of(topic_id)) is not None
            for number in numbers
        }
        if self._unknown_ids() and self._lookup is None and now >= self._lookup_retries.at:
            self._look_up()
        removed = {each for each, topic_id in self._owned.items() if wanted.get(each) != topic_id}
        recreated = frozenset(removed & wanted.keys())
        change = AssignmentChange(
            lost=recreated,
            revoked=frozenset(removed) - recreated,
            assigned=frozenset(wanted.keys() - self._owned.keys()) | recreated,
        )
        if not change:
            self.state = STABLE
            return

        def reconciled(now: float) -> None:
            self._owned, self._assigning = wanted, {}
            self._send_owned = True
            self._reconcile(now)

        self.state = RECONCILING
        self._assigning = {each: wanted[each] for each in change.assigned}
        self.core.begin_change(change, reconciled, now)

    def _unknown_ids(self) -> list[bytes]:
        return [topic_id for topic_id in self._target or () if self.core.topics.name_of(topic_id) is None]

    def _look_up(self) -> None:
        def received(response: MetadataResponse, now: float) -> None:
            self._lookup = None
            self.core.topics.apply(response)
            self._lookup_retries.succeeded()
            if self._unknown_ids():
                self._lookup_retries.failed(now)  # a new topic: other brokers do not know it yet
            self._reconcile(now)

        def failed(error: KafkaError, now: float) -> None:
            self._lookup = None
            self._lookup_retries.failed(now)

        self._lookup = self.core.send(metadata_of_ids(self._unknown_ids()), received, failed, to_coordinator=False)

    def _rejoin(self, now: float) -> None:
        """Lose all partitions, then join with epoch 0."""
        self._forget(LOSING)
        self.core.lose_all(now, self._joining)

    def _joining(self, now: float) -> None:
        self._owned = {}
        self.state = JOINING

    def _forget(self, state: str) -> None:
        self.core.abandon_calls()
        self._heartbeat = self._lookup = None
        self._epoch, self._target, self._send_all = JOIN_EPOCH, None, True
        self._assigning = {}
        self.state = state

    # changes from outside

    def subscription_changed(self, now: float) -> None:
        self._send_subscription = True

    def metadata_changed(self, now: float) -> None:
        if self.state in IN_GROUP:
            self._reconcile(now)

    def commit_failed(self, code: int, now: float) -> None:
        if code == Code.STALE_MEMBER_EPOCH and self.state in IN_GROUP:
            self._heartbeat_at = -inf  # it returns the epoch, or fences the member
        elif code in REJECTED and self.state in IN_GROUP:
            self._rejoin(now)
        elif code == Code.FENCED_INSTANCE_ID:
            self.fail_with(code, now)

    def leave(self, done: Callable[[], None]) -> None:
        in_group = self._epoch != JOIN_EPOCH or self._heartbeat is not None
        self._forget(LEAVING)
        self._owned = {}
        if not in_group:
            self._left(done)
            return
        static = self.core.settings.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.core.settings.group_id,
            member_id=self._member_id,
            member_epoch=LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH,
            instance_id=self.core.settings.instance_id,
        )
        self.send_last(request, partial(self._left, done))

    def _left(self, done: Callable[[], None]) -> None:
        self.state = JOINING
        done()


def _by_id(owned: Owned, assigning: Owned) -> list[OwnedTopic]:
    """Owned partitions as heartbeats report them; those of a topic that was created again have another id."""
    topics: dict[bytes, list[int]] = {}
    for (_, number), topic_id in sorted({*owned.items(), *assigning.items()}):
        topics.setdefault(topic_id, []).append(number)
    return [OwnedTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]
