"""A member of a registered group (kafkalite): it registers for each generation, and the broker assigns.

Pure. Invariants:
1. After an error of a heartbeat the member releases its partitions, finds the coordinator and registers on the channel
   "join": the broker delays the response until all members have registered.
2. The broker names the start offset of each assigned partition. A retained partition keeps its prefetched records.
3. Of two processes with one consumer id the older one is fenced: requests name the process id.
4. A static member does not leave when the consumer is closed: a new process with its consumer id replaces it.
The protocol is described in docs/protocol-extensions.md and docs/groups.md.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from kafkalite.errors import KafkaError, KafkaErrorCode, UnsupportedVersionError, error_for
from kafkalite.model import TopicPartition, uuid_text
from kafkalite.protocol.extensions.create_group import CreateGroupRequest, CreateGroupResponse
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest, HeartbeatPlusResponse
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest, RegisterConsumerResponse
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite_sdk.membership.core import MemberCore
from kafkalite_sdk.membership.protocol import GroupProtocol, Reconsider
from kafkalite_sdk.membership.settings import REGISTERED, AssignmentChange, GroupCall, MemberIdentity
from kafkalite_sdk.membership.user_data import by_topic

Code = KafkaErrorCode

REGISTER_TIMEOUT_EXTRA_S = 5.0
DEFAULT_ASSIGNOR = "uniform"
RELEASE_FACTOR = 1.5  # sessions during which the previous owner of a claim may still be a member
CLAIM_TOPIC_S = 60.0  # time in which a claimed partition may still be created

UNREGISTERED, RELEASING, DEFINING, REGISTERING, STABLE = (
    *("unregistered", "revoking", "creating the group"),
    *("waiting for the other members", "stable"),
)
LOSING, LEAVING, APPLYING = "losing partitions", "leaving", "applying the assignment"
IN_GENERATION = (STABLE, RELEASING, APPLYING)


class RegisteredMember(GroupProtocol):
    """A member of a registered group."""

    name = REGISTERED

    def __init__(self, core: MemberCore, reconsider: Reconsider) -> None:
        super().__init__(core, reconsider)
        self.state = UNREGISTERED
        self._process_id = bytes(core.random.randrange(256) for _ in range(16))
        self._consumer_id = core.settings.instance_id or f"{core.settings.client_id}-{uuid_text(self._process_id)}"
        self._generation = -1
        self._register = True
        self._defined: str | None = None  # the pattern with which the group was created
        self._heartbeat: GroupCall | None = None
        self._heartbeat_at = inf

    def step(self, now: float) -> None:
        if self._must_register() and now >= self.retries.at:
            self._release(now)
        if self._heartbeat is None and now >= self._heartbeat_at and self.state in IN_GENERATION:
            self._send_heartbeat()

    def wake_at(self) -> float:
        heartbeat_at = self._heartbeat_at if self._heartbeat is None and self.state in IN_GENERATION else inf
        return min(heartbeat_at, self.retries.at if self._must_register() else inf)

    def _must_register(self) -> bool:
        """Whether the member registers as soon as it may; a pattern that the client resolves is resolved before."""
        known = self.core.wanted_topics is not None or self._broker_pattern() is not None
        return self._register and self.state in (UNREGISTERED, STABLE) and self.core.change is None and known

    # registration

    def _release(self, now: float) -> None:
        self.state = RELEASING
        change = AssignmentChange(revoked=self.core.assignment, keep_fetched=True)
        self.core.begin_change(change, self._released, now)

    def _released(self, now: float) -> None:
        self.state = UNREGISTERED
        self._heartbeat_at = inf
        if self._generation >= 0:  # find the coordinator, then register
            self._generation = -1
            self.core.coordinator_lost()
        elif self._broker_pattern() not in (None, self._defined):
            self._create_group()
        else:
            self._send_registration()

    def _broker_pattern(self) -> str | None:
        """The pattern that the broker resolves, None = there is none, or the client resolves it."""
        subscription = self.core.subscription
        return subscription.pattern if subscription.excluded is None and not self.resolves_patterns else None

    def _create_group(self) -> None:
        """Define the group by the pattern. A group with members keeps its definition: then the client resolves it."""
        self.state = DEFINING
        pattern = self._broker_pattern()
        request = CreateGroupRequest(
            group_id=self.core.settings.group_id,
            session_timeout_ms=round(self.core.settings.session_timeout_s * 1000),
            topic_pattern=pattern,
            assignor=self.core.settings.server_assignor or DEFAULT_ASSIGNOR,
        )

        def created(response: CreateGroupResponse, now: float) -> None:
            self.state = UNREGISTERED
            if response.error_code == Code.NON_EMPTY_GROUP:
                self.resolves_patterns = True
            elif not response.error_code:
                self._defined = pattern
            else:
                self._rejected(response.error_code, now)

        self.core.send(request, created, self._failed)

    def _send_registration(self) -> None:
        self.state = REGISTERING
        self._register = False
        settings = self.core.settings
        topics = sorted(self.core.wanted_topics or ()) if self._broker_pattern() is None else []
        request = RegisterConsumerRequest(
            group_id=settings.group_id,
            consumer_id=self._consumer_id,
            topics=topics,
            claimed_partitions=[
                RegisterConsumerRequest.ClaimedTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(self.core.subscription.claims).items()
            ],
            session_timeout_ms=round(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=round(settings.max_poll_interval_s * 1000),
            process_id=self._process_id,
            assignor=settings.server_assignor,
        )
        timeout_s = max(settings.request_timeout_s, settings.max_poll_interval_s + REGISTER_TIMEOUT_EXTRA_S)
        self.core.send(request, self._registered, self._failed, channel="join", timeout_s=timeout_s)

    def _registered(self, response: RegisterConsumerResponse, now: float) -> None:
        if response.error_code:
            self._register, self.state = True, UNREGISTERED
            self._rejected(response.error_code, now)
            return
        self.retries.succeeded()
        settings = self.core.settings
        self._generation = response.generation_id
        self.core.identity = MemberIdentity(settings.group_id, self._generation, self._consumer_id, None)
        self.core.last_heartbeat = now
        self._heartbeat_at = now + settings.heartbeat_interval_s
        starts = {
            TopicPartition(topic.name, each.partition_index): each.start_offset
            for topic in response.partitions
            for each in topic.partitions
        }
        self.state = APPLYING
        self.core.begin_change(AssignmentChange(assigned=frozenset(starts), start_offsets=starts), self._applied, now)

    def _applied(self, now: float) -> None:
        self.state = STABLE

    def _rejected(self, code: int, now: float) -> None:
        """A registration, or the creation of the group, was rejected."""
        if code in (Code.REBALANCE_IN_PROGRESS, Code.UNKNOWN_MEMBER_ID):
            self.retries.failed(now)
        elif code == Code.INCONSISTENT_GROUP_PROTOCOL:
            self.retries.failed(now)
            group = self.core.settings.group_id
            self.reconsider(error_for(code, f"group {group} has live members of another protocol"), now)
        elif self._may_change(code, now):
            self.retries.failed(now)
        elif code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            claims = ", ".join(map(str, sorted(self.core.subscription.claims)))
            self.fail_with(code, now, f"a claimed partition does not exist ({claims}); create it, then call add_topic")
        elif not self.retry_later(code, now):
            self.fail_with(code, now)

    def _may_change(self, code: int, now: float) -> bool:
        """Whether a claim may be accepted later: its topic is created, or its owner's session expires."""
        waits: dict[int, float] = {
            Code.UNKNOWN_TOPIC_OR_PARTITION: CLAIM_TOPIC_S,
            Code.UNRELEASED_INSTANCE_ID: RELEASE_FACTOR * self.core.settings.session_timeout_s,
        }
        seconds = waits.get(code, 0.0)
        return self.retries.failing_s(now) < seconds

    def _failed(self, error: KafkaError, now: float) -> None:
        if isinstance(error, UnsupportedVersionError):
            self.reconsider(error, now)
        elif self.lost_connection(error, now):
            self._register, self.state = True, UNREGISTERED

    # heartbeats

    def _send_heartbeat(self) -> None:
        request = HeartbeatPlusRequest(
            group_id=self.core.settings.group_id,
            consumer_id=self._consumer_id,
            generation_id=self._generation,
            session_timeout_ms=0,
            process_id=self._process_id,
        )
        sent_in = self._generation

        def answered(response: HeartbeatPlusResponse, now: float) -> None:
            self._heartbeat = None
            if self._generation >= 0:
                self._heartbeat_at = now + self.core.settings.heartbeat_interval_s
            if sent_in == self._generation:
                self._heartbeat_answered(response, now)

        timeout_s = min(self.core.settings.request_timeout_s, self.core.settings.session_timeout_s)
        self._heartbeat = self.core.send(request, answered, self._heartbeat_failed, timeout_s=timeout_s)

    def _heartbeat_answered(self, response: HeartbeatPlusResponse, now: float) -> None:
        code = response.error_code
        if not code:
            self.core.last_heartbeat = now
            self._generation = response.generation_id
            if self.core.identity is not None:
                self.core.identity = self.core.identity._replace(generation=self._generation)
        elif code == Code.REBALANCE_IN_PROGRESS:
            self.core.last_heartbeat = now
            self._register = True
        elif code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION):
            self._lose(now)
        elif self.retry_later(code, now):
            self._heartbeat_at = self.retries.at
        else:
            self.fail_with(code, now)

    def _heartbeat_failed(self, error: KafkaError, now: float) -> None:
        self._heartbeat = None
        if self.lost_connection(error, now):
            self._heartbeat_at = self.retries.at

    def _lose(self, now: float) -> None:
        """Lose all partitions, then register again."""
        self._forget(LOSING)
        self.core.lose_all(now, self._lost)

    def _lost(self, now: float) -> None:
        self.state = UNREGISTERED

    def _forget(self, state: str) -> None:
        self.core.abandon_calls()
        self._heartbeat, self._heartbeat_at = None, inf
        self._generation, self._register = -1, True
        self.state = state

    # changes from outside

    def metadata_changed(self, now: float) -> None:
        """The broker watches the topics."""

    def subscription_changed(self, now: float) -> None:
        self._register = True

    def commit_failed(self, code: int, now: float) -> None:
        if code == Code.UNKNOWN_MEMBER_ID and self.state == STABLE:
            self._lose(now)
        elif code in (Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS):
            self._heartbeat_at = -inf  # its response shows whether the member must register

    def leave(self, done: Callable[[], None]) -> None:
        member = self._generation >= 0 or self.state == REGISTERING
        self._forget(LEAVING)
        if not member or self.core.settings.instance_id is not None:
            self._left(done)
            return
        request = LeaveGroupRequest(
            group_id=self.core.settings.group_id,
            member_id=self._consumer_id,
            members=[LeaveGroupRequest.MemberIdentity(member_id=self._consumer_id)],
        )
        self.send_last(request, partial(self._left, done))

    def _left(self, done: Callable[[], None]) -> None:
        self.state = UNREGISTERED
        done()
