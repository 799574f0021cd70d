"""The requests of a consumer to the coordinator of its group: membership, commits, committed offsets.

Invariants:
1. The coordinator is found once for all of them, and found again when any of them learns that it has moved.
2. A consumer that reads assigned partitions is not a member: it commits with generation -1. A consumer that has
   subscribed commits as a member, or not at all.
3. OffsetCommit and OffsetFetch never wait for a connection: until they are written, their commits can still expire or
   lose partitions that the group has taken away.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.net.client.core import Fail
from kafkalite.protocol.messages.offset_commit import OffsetCommitResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchResponse
from kafkalite.protocol.schema import Response
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.coordinators import GROUP
from kafkalite_sdk.consumer.offsets.commits import CommitCall, Commits
from kafkalite_sdk.consumer.offsets.committed_offsets import CommittedOffsets, FetchOffsetsCall
from kafkalite_sdk.membership.membership import Membership
from kafkalite_sdk.membership.settings import GroupCall, MemberIdentity, MembershipSettings

LOGGER = logging.getLogger("kafkalite_sdk.retries")

GROUP_CHANNEL = "group"


class GroupRequests:
    """The requests of one consumer to its coordinator.

    Arguments:
        settings: of the member.
        client: sends them.
        now: time of the loop's clock in seconds.
        changed: called after each response.

    Attributes:
        group: its id.
        membership, commits, committed: the machines.
        subscribed: the consumer is, or wants to be, a member.
        error: the coordinator cannot be found, for a reason that does not pass; raised once.
    """

    def __init__(
        self,
        settings: MembershipSettings,
        client: ClusterClient,
        now: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.group = settings.group_id
        self.membership = Membership(settings, client.environment.random, client.view)
        self.commits = Commits(self.group, settings.retry_backoff_s)
        self.committed = CommittedOffsets(self.group, settings.retry_backoff_s, settings.retry_backoff_max_s)
        self.subscribed = False
        self.error: KafkaError | None = None
        self._client = client
        self._guard = client.owner.guard
        self._now = now
        self._changed = changed
        self._finding = False
        self._find_at = 0.0
        self._connecting = False
        self._connect_at = 0.0
        self._anonymous = MemberIdentity(self.group, -1, "", None)

    @property
    def coordinator(self) -> int | None:
        """Broker id of the coordinator, None = unknown."""
        return self._client.coordinator(self.group)

    def identity(self) -> MemberIdentity | None:
        """The sender of commits; None = it has no partitions to commit."""
        return self.membership.identity() if self.subscribed else self._anonymous

    @property
    def needs_poll(self) -> bool:
        """Whether the next poll has more to do than to return records."""
        return self.membership.change is not None or self.membership.error is not None or self.error is not None

    def raise_error(self) -> None:
        """Raise a fatal error each time, any other error of the group once."""
        self.membership.raise_error()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def close(self) -> None:
        """The client is closed: commits that were not sent fail."""
        try:
            self._client.check_owner()
        except KafkaError as error:
            self.commits.fail(error)

    def metadata_changed(self) -> None:
        """The view has changed."""
        self.membership.metadata_changed(self._now())

    def no_member(self) -> KafkaError:
        """The error of commits without an identity."""
        text = f"group {self.group}: the consumer owns no partitions now; call poll() until it has joined again"
        return error_for(KafkaErrorCode.UNKNOWN_MEMBER_ID, text)

    def work(self, now: float) -> float:
        """Send what is due; return when the next request is due. Times are seconds of the loop's clock."""
        self.commits.expire(now)
        self._forget_moved(now)
        calls = self.membership.requests(now)
        for call in calls:
            if not call.to_coordinator:
                self._send_to_any(call)
        node = self._find(now)
        if node is not None:
            for call in calls:
                if call.to_coordinator:
                    self._send_member(node, call)
            self._send_offsets(node, now)
        pauses = (at for at in (self._connect_at, self._find_at) if at > now)
        machines = self.membership.wake_at(now), self.commits.wake_at(now), self.committed.wake_at(now)
        return min(*machines, *pauses)

    def _forget_moved(self, now: float) -> None:
        """Forget a coordinator that has moved. The member keeps its requests while the coordinator is unknown."""
        commits, committed = self.commits, self.committed
        if commits.coordinator_lost or committed.coordinator_lost or self.membership.needs_coordinator:
            if not self._finding:
                self._client.forget_coordinator(self.group)
            commits.coordinator_lost = committed.coordinator_lost = False
        if self.coordinator is None:
            self.membership.coordinator_lost(now)

    def _find(self, now: float) -> int | None:
        """Return the coordinator; find it if it is needed and unknown."""
        commits, committed, membership = self.commits, self.committed, self.membership
        needed = membership.needs_coordinator or commits.needs_coordinator or committed.needs_coordinator
        if self.coordinator is None and needed and not self._finding and self._find_at <= now:
            self._finding = True
            self._client.find_coordinator(self.group, GROUP, self._guard(self._found), self._guard(self._not_found))
        return self.coordinator

    def _found(self, _: int) -> None:
        self._finding = False
        self.membership.coordinator_found(self._now())
        self._changed()

    def _not_found(self, error: KafkaError) -> None:
        self._finding = False
        self._find_at = self._now() + self.membership.settings.retry_backoff_max_s  # the lookup itself has retried
        if error.code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED:
            error = self.membership.rights_error(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not error.retriable:
            self.error = error
            self.commits.fail(error)
            self.committed.fail(error)
        self._changed()

    def _send_to_any(self, call: GroupCall) -> None:
        self._client.submit_any(
            call.request,
            self._guard(partial(self._answered, call)),
            self._guard(partial(self._failed, call)),
            timeout_s=call.timeout_s,
        )

    def _send_member(self, node: int, call: GroupCall) -> None:
        self._client.submit(
            node,
            call.request,
            self._guard(partial(self._answered, call)),
            self._guard(partial(self._failed, call)),
            timeout_s=call.timeout_s,
            channel=call.channel,
        )

    def _answered(self, call: GroupCall, response: Response) -> None:
        if code := getattr(response, "error_code", 0):
            error = error_for(code, getattr(response, "error_message", None))
            if error.retriable:
                LOGGER.debug("group %s: %s", self.group, error)
        self.membership.answered(call, response, self._now())
        self._changed()

    def _failed(self, call: GroupCall, error: KafkaError) -> None:
        self.membership.failed(call, error, self._now())
        self._changed()

    def _send_offsets(self, node: int, now: float) -> None:
        identity = self.identity()
        if identity is None and self.commits.needs_coordinator:
            self.commits.fail(self.no_member())
        if not self.commits.needs_coordinator and not self.committed.needs_coordinator:
            return
        if not self._client.is_connected(node, GROUP_CHANNEL):
            self._connect(node)
            return
        if identity is not None:
            for call in self.commits.requests(now, identity, self.membership.last_heartbeat):
                self._send_commit(node, call)
        for question in self.committed.requests(now):
            self._send_question(node, question)

    def _connect(self, node: int) -> None:
        def connected(_: object) -> None:
            self._connecting = False
            self._changed()

        def failed(_: KafkaError) -> None:
            self._connecting = False
            self.commits.coordinator_lost = True
            self._connect_at = self._now() + self.membership.settings.retry_backoff_s
            self._changed()

        if not self._connecting and self._connect_at <= self._now():
            self._connecting = True
            self._client.connect(node, self._guard(connected), self._guard(failed), channel=GROUP_CHANNEL)

    def _send_commit(self, node: int, call: CommitCall) -> None:
        def answered(response: OffsetCommitResponse) -> None:
            now = self._now()
            self.commits.answered(call, response, now)
            if self.commits.member_error is not None:
                (identity, code), self.commits.member_error = self.commits.member_error, None
                self.membership.commit_failed(identity, code, now)
            self._changed()

        def lost(error: KafkaError) -> None:
            self.commits.lost(call, error, self._now())
            self._changed()

        self._send_call(node, call, answered, lost)

    def _send_question(self, node: int, call: FetchOffsetsCall) -> None:
        def answered(response: OffsetFetchResponse) -> None:
            self.committed.answered(call, response, self._now())
            self._changed()

        def lost(error: KafkaError) -> None:
            self.committed.lost(call, error, self._now())
            self._changed()

        self._send_call(node, call, answered, lost)

    def _send_call(
        self, node: int, call: CommitCall | FetchOffsetsCall, answered: Callable[[Any], None], lost: Fail
    ) -> None:
        answer, fail = self._guard(answered), self._guard(lost)
        self._client.submit(node, call.request, answer, fail, version_max=call.version_max, channel=GROUP_CHANNEL)
