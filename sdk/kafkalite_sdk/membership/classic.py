"""A member of a classic group: it joins, its leader assigns, all members fetch their assignment (JoinGroup, SyncGroup).

Pure. Eager members release all partitions before they join. Cooperative members keep them, declare them in their
subscription, release what the assignment lacks, and join again (KIP-429). The protocol is cooperative if all assignors
of the member are. Invariants:
1. One of JoinGroup and SyncGroup is open at a time, on the channel "join"; heartbeats go on meanwhile where the member
   has a generation.
2. An eager member owns nothing while JoinGroup is open.
3. A member whose generation or member id is rejected loses its partitions before it joins again.
4. A leader that returns as a static member verifies the assignment that the group keeps. Java's leader does not:
   partitions created in between have no owner until the next rebalance.
5. A static cooperative member that missed a generation loses its partitions: another member may have owned them. Java's
   consumer keeps them.
Sources: AbstractCoordinator.java and ConsumerCoordinator.java of Apache Kafka 4.3; rdkafka_cgrp.c of librdkafka.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from kafkalite.errors import DecodeError, KafkaError, KafkaErrorCode, error_for
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkalite_sdk.membership.assignors import AssignmentData, ClassicAssignor, MemberSubscription
from kafkalite_sdk.membership.classic_leader import GroupLeader
from kafkalite_sdk.membership.consumer_protocol import decode_assignment, encode_subscription
from kafkalite_sdk.membership.core import MemberCore
from kafkalite_sdk.membership.protocol import GroupProtocol, Reconsider
from kafkalite_sdk.membership.settings import (
    CLASSIC,
    NO_PARTITIONS,
    AssignmentChange,
    GroupCall,
    MemberIdentity,
    Partitions,
)
from kafkalite_sdk.membership.topics import metadata_of_topics

Code = KafkaErrorCode

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
JOIN_TIMEOUT_EXTRA_S = 5.0  # JoinGroup may take the rebalance timeout, and its response some time more

UNJOINED, REVOKING, JOINING, LEADING, SYNCING, ASSIGNING, STABLE = (
    *("unjoined", "revoking", "joining", "assigning as leader", "waiting for the assignment"),
    *("applying the assignment", "stable"),
)
LOSING, LEAVING = "losing partitions", "leaving"
CAN_JOIN = (UNJOINED, STABLE)
HAS_GENERATION = (STABLE, REVOKING, LEADING, SYNCING, ASSIGNING)
REBALANCED = (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS)


class ClassicMember(GroupProtocol):
    """A member of a classic group."""

    name = CLASSIC
    resolves_patterns = True

    def __init__(self, core: MemberCore, reconsider: Reconsider) -> None:
        super().__init__(core, reconsider)
        self.state = UNJOINED
        self.cooperative = all(assignor.cooperative for assignor in core.settings.assignors)
        self._by_name = {assignor.name: assignor for assignor in core.settings.assignors}
        self._member_id = ""
        self._generation = NO_GENERATION
        self._rejoin = True
        self._reason = ""
        self._heartbeat: GroupCall | None = None
        self._heartbeat_at = inf
        self._joined_topics: frozenset[str] = frozenset()
        self._last = NO_PARTITIONS, NO_GENERATION  # the last assignment and its generation, for user data
        self._missed_generation = False
        self._begun = False  # the beginning of this rebalance was reported
        self._leader: GroupLeader | None = None
        self._assignor: ClassicAssignor | None = None  # of the generation

    def step(self, now: float) -> None:
        if self._must_join() and now >= self.retries.at:
            self._prepare_join(now)
        if self._heartbeat is None and now >= self._heartbeat_at and self.state in HAS_GENERATION:
            self._send_heartbeat()

    def wake_at(self) -> float:
        heartbeat_at = self._heartbeat_at if self._heartbeat is None and self.state in HAS_GENERATION else inf
        return min(heartbeat_at, self.retries.at if self._must_join() else inf)

    def _must_join(self) -> bool:
        """Whether the member joins as soon as it may; a pattern is resolved before."""
        ready = self.core.change is None and self.core.wanted_topics is not None
        return self._rejoin and self.state in CAN_JOIN and ready

    # join

    def _prepare_join(self, now: float) -> None:
        """Release the partitions that the member may not keep during the rebalance, then join."""
        topics = self.core.wanted_topics or frozenset()
        owned = self.core.assignment
        revoked = frozenset(each for each in owned if not self.cooperative or each.topic not in topics)
        self.state = REVOKING
        begins = self.core.reports_rebalances and not self._begun
        self._begun = True
        change = AssignmentChange(revoked=revoked, keep_fetched=not self.cooperative, begins=begins)
        self.core.begin_change(change, self._join, now)

    def _join(self, now: float) -> None:
        self._rejoin = False
        self.state = JOINING
        settings = self.core.settings
        self._joined_topics = self.core.wanted_topics or frozenset()
        protocols = []
        for assignor in settings.assignors:
            try:
                metadata = self._subscription(assignor)
            except Exception as error:  # a user-defined assignor may raise anything
                self._assignor_failed(assignor, error, now)
                return
            protocols.append(JoinGroupRequest.JoinGroupRequestProtocol(name=assignor.name, metadata=metadata))
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=round(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=round(settings.max_poll_interval_s * 1000),
            member_id=self._member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self._reason or None,
        )
        timeout_s = max(settings.request_timeout_s, settings.max_poll_interval_s + JOIN_TIMEOUT_EXTRA_S)
        self.core.send(request, self._joined, self._join_failed, channel="join", timeout_s=timeout_s)

    def _subscription(self, assignor: ClassicAssignor) -> bytes:
        subscription = MemberSubscription(
            self._joined_topics,
            self.core.assignment,
            self._generation,
            rack_id=self.core.settings.rack,
            user_data=assignor.user_data(*self._last),
        )
        return encode_subscription(subscription)

    def _assignor_failed(self, assignor: ClassicAssignor, error: Exception, now: float) -> None:
        failed = KafkaError(f"group {self.core.settings.group_id}: the assignor {assignor.name} failed: {error!r}")
        failed.__cause__ = error
        self.core.fail(failed, now)

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        if response.error_code:
            self._join_rejected(response, now)
            return
        settings = self.core.settings
        assignor = self._by_name.get(response.protocol_name or "")
        if assignor is None or response.protocol_type not in (None, PROTOCOL_TYPE):
            self.fail_with(Code.INCONSISTENT_GROUP_PROTOCOL, now, f"it uses the assignor {response.protocol_name}")
            return
        self.retries.succeeded()
        if settings.instance_id is not None and 0 <= self._generation < response.generation_id - 1:
            self._missed_generation = bool(self.core.assignment)
        self._member_id, self._generation = response.member_id, response.generation_id
        self._set_identity()
        self._heartbeat_at = now + settings.heartbeat_interval_s
        self._assignor = assignor
        self._leader = None
        if response.leader != response.member_id:
            self._sync(response.protocol_name, [])
            return
        self._leader = GroupLeader(assignor, response)
        self._lead(now)

    def _join_rejected(self, response: JoinGroupResponse, now: float) -> None:
        code = response.error_code
        self.state, self._rejoin = UNJOINED, True
        if code == Code.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        elif code == Code.REBALANCE_IN_PROGRESS:
            self.retries.failed(now)
        elif code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION):
            self._reset(code, now)
        elif code == Code.INCONSISTENT_GROUP_PROTOCOL:
            names = ", ".join(self._by_name)
            reason = f"group {self.core.settings.group_id}: its members use none of the assignors {names}"
            self.reconsider(error_for(code, f"{reason}; name a common one"), now)
        elif not self.retry_later(code, now):
            self.fail_with(code, now)

    def _join_failed(self, error: KafkaError, now: float) -> None:
        if self.lost_connection(error, now):
            self.state, self._rejoin = UNJOINED, True

    # the leader

    def _lead(self, now: float) -> None:
        """Assign as the leader; wait for the partition counts of topics that other members read."""
        leader = self._leader
        assert leader is not None
        self.state = LEADING
        missing = self.core.topics.missing(leader.topics)
        if missing:

            def received(response: MetadataResponse, now: float) -> None:
                self.core.topics.apply(response, missing)
                self._assign_as_leader(leader, now)

            self.core.send(metadata_of_topics(missing), received, self._leader_failed, to_coordinator=False)
            return
        self._assign_as_leader(leader, now)

    def _leader_failed(self, error: KafkaError, now: float) -> None:
        """The partition counts are unknown: join again, which gives the other members a generation, too."""
        self.retries.failed(now)
        self._request_join("the leader has no metadata")
        self.state = UNJOINED

    def _assign_as_leader(self, leader: GroupLeader, now: float) -> None:
        try:
            assignments = leader.assign(self.core.topics)
        except Exception as error:  # a user-defined assignor may raise anything
            self._assignor_failed(leader.assignor, error, now)
            return
        parts = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in assignments.items()
        ]
        self._sync(leader.assignor.name, parts)

    def _check_kept_assignment(self, leader: GroupLeader) -> None:
        """Join again if the assignment that the group keeps lacks partitions: they were created before this process has
        become the leader.
        """

        def received(response: DescribeGroupsResponse, now: float) -> None:
            (group,) = response.groups
            if group.error_code or not leader.covers(member.member_assignment for member in group.members):
                self._request_join("the assignment lacks partitions")

        def failed(error: KafkaError, now: float) -> None:
            self._request_join("the assignment may lack partitions")

        self.core.send(DescribeGroupsRequest(groups=[self.core.settings.group_id]), received, failed)

    def watched_topics(self) -> frozenset[str]:
        return self._leader.topics if self._leader is not None else frozenset()

    def metadata_changed(self, now: float) -> None:
        if self._leader is not None and self._leader.is_outdated(self.core.topics):
            self._request_join("topics of the group have changed")

    # the assignment

    def _sync(self, assignor: str | None, parts: list[SyncGroupRequest.SyncGroupRequestAssignment]) -> None:
        self.state = SYNCING
        request = SyncGroupRequest(
            group_id=self.core.settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.core.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor,
            assignments=parts,
        )
        settings = self.core.settings
        timeout_s = max(settings.request_timeout_s, settings.max_poll_interval_s + JOIN_TIMEOUT_EXTRA_S)
        self.core.send(request, self._synced, self._sync_failed, channel="join", timeout_s=timeout_s)

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        if response.error_code:
            self._sync_rejected(response.error_code, now)
            return
        try:
            partitions, user_data = decode_assignment(response.assignment)
        except DecodeError as error:
            self.core.fail(error, now)
            return
        self.retries.succeeded()
        if isinstance(self._assignor, AssignmentData):
            try:
                self._assignor.on_assignment(partitions, user_data)
            except Exception as error:  # a user-defined assignor may raise anything
                self._assignor_failed(self._assignor, error, now)
                return
        assigned = frozenset(each for each in partitions if each.topic in self._joined_topics)
        self._last = assigned, self._generation
        self.state = ASSIGNING
        if self.core.assignment - assigned:
            self._request_join("revoked partitions")  # the leader assigns them when their owner has released them
        if not self._missed_generation:
            self._apply(assigned, now)
            return

        def lost(now: float) -> None:
            self._missed_generation = False
            self._set_identity()
            self._apply(assigned, now)

        self.core.lose_all(now, lost)

    def _apply(self, assigned: Partitions, now: float) -> None:
        owned = self.core.assignment
        ends = self.core.reports_rebalances and self._begun
        self._begun = False
        change = AssignmentChange(revoked=owned - assigned, assigned=assigned - owned, ends=ends)
        self.core.begin_change(change, self._applied, now)

    def _set_identity(self) -> None:
        """Commit with the current generation; not while the member has partitions of a generation before the last."""
        settings = self.core.settings
        member = MemberIdentity(settings.group_id, self._generation, self._member_id, settings.instance_id)
        self.core.identity = None if self._missed_generation else member

    def _applied(self, now: float) -> None:
        self.state = STABLE
        if self._leader is not None and self._leader.skips:
            self._check_kept_assignment(self._leader)
        if self.core.wanted_topics not in (None, self._joined_topics):
            self._request_join("the subscription has changed")

    def _sync_rejected(self, code: int, now: float) -> None:
        self.state = UNJOINED
        self._request_join(f"SyncGroup failed with {code}")
        if code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION):
            self._reset(code, now)
        elif code != Code.REBALANCE_IN_PROGRESS and not self.retry_later(code, now):
            self.fail_with(code, now)

    def _sync_failed(self, error: KafkaError, now: float) -> None:
        if self.lost_connection(error, now):
            self.state = UNJOINED
            self._request_join("SyncGroup failed")

    # heartbeats

    def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.core.settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.core.settings.instance_id,
        )
        timeout_s = min(self.core.settings.request_timeout_s, self.core.settings.session_timeout_s)
        sent_in = self._generation

        def answered(response: HeartbeatResponse, now: float) -> None:
            self._heartbeat = None
            self._heartbeat_at = now + self.core.settings.heartbeat_interval_s
            if sent_in == self._generation:
                self._heartbeat_answered(response.error_code, now)

        self._heartbeat = self.core.send(request, answered, self._heartbeat_failed, timeout_s=timeout_s)

    def _heartbeat_answered(self, code: int, now: float) -> None:
        if not code:
            self.core.last_heartbeat = now
        elif code == Code.REBALANCE_IN_PROGRESS:
            self.core.last_heartbeat = now
            if self.state in (STABLE, ASSIGNING):
                self._request_join("the group is rebalancing")
        elif code in REBALANCED:
            self._reset(code, now)
        elif self.retry_later(code, now):
            self._heartbeat_at = self.retries.at
        else:
            self.fail_with(code, now)

    def _heartbeat_failed(self, error: KafkaError, now: float) -> None:
        self._heartbeat = None
        if self.lost_connection(error, now):
            self._heartbeat_at = self.retries.at

    # changes from outside

    def subscription_changed(self, now: float) -> None:
        self._request_join("the subscription has changed")

    def _request_join(self, reason: str) -> None:
        self._rejoin = True
        self._reason = reason

    def commit_failed(self, code: int, now: float) -> None:
        if code == Code.UNKNOWN_MEMBER_ID:
            if self.state == STABLE:
                self._reset(code, now)
        elif code == Code.ILLEGAL_GENERATION:
            if self.state == STABLE:  # its response shows whether the generation has ended, or a partition has moved
                self._heartbeat_at = -inf
        elif code == Code.REBALANCE_IN_PROGRESS:
            self._request_join("a commit failed during a rebalance")
        elif code == Code.FENCED_INSTANCE_ID:
            self.fail_with(code, now)

    def _reset(self, code: int, now: float) -> None:
        """Lose all partitions, then join as a new member; after ILLEGAL_GENERATION with the same member id."""
        self.core.abandon_calls()
        self._forget_generation()
        if code == Code.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        self._request_join(f"the broker returned {code}")
        self.state = LOSING
        self.core.lose_all(now, self._unjoined)

    def _unjoined(self, now: float) -> None:
        self.state = UNJOINED

    def _forget_generation(self) -> None:
        self._heartbeat = None
        self._heartbeat_at = inf
        self._generation = NO_GENERATION
        self._leader = None
        self._missed_generation = False

    def leave(self, done: Callable[[], None]) -> None:
        self.core.abandon_calls()
        self.state = LEAVING
        member_id, self._member_id = self._member_id, ""
        self._forget_generation()
        self._rejoin = True
        if not member_id or self.core.settings.instance_id is not None:
            self._left(done)
            return
        request = LeaveGroupRequest(
            group_id=self.core.settings.group_id,
            member_id=member_id,
            members=[LeaveGroupRequest.MemberIdentity(member_id=member_id, reason="the consumer is closing")],
        )
        self.send_last(request, partial(self._left, done))

    def _left(self, done: Callable[[], None]) -> None:
        self.state = UNJOINED
        done()
