"""The ISR of one partition, as its leader changes it: which change it requests, and what a response means.

1. A follower joins when its log end has reached the high watermark and the start of the leader epoch: it then has every
   record that may be committed. A leader never adds a replica that is not eligible (not alive, or of another
   registration than the one that has fetched, KIP-841 and KIP-903).
2. A follower leaves when it lags for longer than is allowed (`isr_shrink`).
3. One change is in flight at a time. The state is written with its version, so a change is applied to the ISR that the
   leader knows, or not at all.
4. While a follower is to join, the high watermark waits for it, too (`expected`): the change may be applied before the
   leader learns it. While a follower is to leave, the high watermark still waits for it (KIP-497; `high_watermark`).
5. An error that leaves open what is committed keeps the change pending, until the controller sends a newer state. Only
   errors that say that nothing was applied end it, and unknown errors repeat it. The caller may request a pending
   change again at any time: the controller applies it once, or not at all.

Deviation: in ZooKeeper mode Kafka sends broker epochs of -1; here they are those of the followers' fetches.
Sources: KIP-497; Partition.scala (maybeExpandIsr, maybeShrinkIsr, handleAlterPartitionError,
handleAlterPartitionUpdate) of Apache Kafka 3.9.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.isr.isr_shrink import members_in_sync
from kafkalite.state.isr.replica_progress import UNKNOWN_EPOCH, ReplicaProgress

# The controller says that the partition epoch is right, and that nothing was applied.
NOT_APPLIED = frozenset({KafkaErrorCode.OPERATION_NOT_ATTEMPTED, KafkaErrorCode.INELIGIBLE_REPLICA})
# The state here may be out of date: the controller sends another one.
AWAIT_STATE = frozenset(
    {
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.UNKNOWN_TOPIC_ID,
        KafkaErrorCode.FENCED_LEADER_EPOCH,
        KafkaErrorCode.INVALID_UPDATE_VERSION,
        KafkaErrorCode.INVALID_REQUEST,
        KafkaErrorCode.NEW_LEADER_ELECTED,
    }
)


class IsrMember(NamedTuple):
    """A member of a requested ISR, with the broker epoch of its last fetch; -1 = it has not fetched here."""

    broker_id: int
    broker_epoch: int


class IsrChange(NamedTuple):
    """A change that AlterPartition requests.

    Arguments:
        isr: the requested ISR.
        leader_epoch, partition_epoch: of the state that is changed.
        joins: the follower that is added; None where followers are removed.
    """

    isr: tuple[IsrMember, ...]
    leader_epoch: int
    partition_epoch: int
    joins: int | None = None


class CommittedIsr(NamedTuple):
    """The ISR of a state of the controller.

    Arguments:
        isr: broker ids.
        leader_epoch, partition_epoch: of the state.
        eligible: the eligible replicas of the state; nothing is committed while there are any.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = ()


class Result(Enum):
    """What follows from the response to a change."""

    IGNORED = "the response is of an earlier change or state"
    APPLIED = "the committed ISR is another one"
    REVERTED = "the change was not applied; the committed ISR is as before"
    WAITING = "the controller sends the state"
    REPEATED = "the change is requested again"


class PartitionIsr:
    """The ISR that a leader knows.

    Arguments:
        own_id: broker id of the leader.
        own_epoch: broker epoch of its registration.
        committed: of the state with which its leadership began.

    Attributes:
        pending: the change in flight, or None.
    """

    __slots__ = ("_own_epoch", "_own_id", "committed", "pending")

    def __init__(self, own_id: int, own_epoch: int, committed: CommittedIsr) -> None:
        self._own_id = own_id
        self._own_epoch = own_epoch
        self.committed = committed
        self.pending: IsrChange | None = None

    @property
    def expected(self) -> tuple[int, ...]:
        """Followers outside the committed ISR that the high watermark waits for."""
        return () if self.pending is None or self.pending.joins is None else (self.pending.joins,)

    def receive_state(self, committed: CommittedIsr) -> bool:
        """Use a state that the controller has sent. Returns whether it is used: not an older one, and not the known
        one while a change is in flight, which may still be applied to it.

        A change in flight cannot be applied to a newer state: its response is ignored.
        """
        known = self.committed
        if committed.partition_epoch < known.partition_epoch:
            return False
        if self.pending is not None and committed[1:3] == known[1:3]:
            return False
        self.committed = committed
        self.pending = None
        return True

    def expand(
        self,
        replica_id: int,
        followers: Mapping[int, ReplicaProgress],
        high_watermark: int,
        epoch_start: int,
        *,
        eligible: bool,
    ) -> IsrChange | None:
        """Return the change that adds a follower after its fetch, None if it cannot join now.

        Arguments:
            replica_id: the follower.
            followers: the progress of all followers, by broker id.
            high_watermark: of the leader.
            epoch_start: the log end at which the leader epoch began.
            eligible: whether the broker is alive, with the registration that has fetched.
        """
        if self.pending is not None or replica_id in self.committed.isr or not eligible:
            return None
        if followers[replica_id].end_offset < max(high_watermark, epoch_start):
            return None
        return self._request((*self.committed.isr, replica_id), followers, joins=replica_id)

    def shrink(
        self, followers: Mapping[int, ReplicaProgress], leader_end_offset: int, now_ms: int, lag_max_ms: int
    ) -> IsrChange | None:
        """Return the change that removes the followers that lag, None if there is none.

        Arguments:
            followers: the progress of all followers, by broker id.
            leader_end_offset: the leader's log end.
            now_ms: milliseconds of the clock of the progress.
            lag_max_ms: the allowed lag.
        """
        if self.pending is not None:
            return None
        kept = members_in_sync(self.committed.isr, self._own_id, followers, leader_end_offset, now_ms, lag_max_ms)
        return None if kept == self.committed.isr else self._request(kept, followers)

    def _request(
        self, isr: tuple[int, ...], followers: Mapping[int, ReplicaProgress], joins: int | None = None
    ) -> IsrChange:
        members = tuple(IsrMember(member, self._epoch_of(member, followers)) for member in isr)
        self.pending = IsrChange(members, self.committed.leader_epoch, self.committed.partition_epoch, joins)
        return self.pending

    def _epoch_of(self, member: int, followers: Mapping[int, ReplicaProgress]) -> int:
        if member == self._own_id:
            return self._own_epoch
        return followers[member].broker_epoch if member in followers else UNKNOWN_EPOCH

    def apply_response(self, change: IsrChange, committed: CommittedIsr) -> Result:
        """Apply a response without an error.

        Arguments:
            change: that was requested.
            committed: the state in the response. With the known partition epoch, the ISR was as requested before.
        """
        if change is not self.pending:
            return Result.IGNORED
        known = self.committed
        if committed.leader_epoch != known.leader_epoch or committed.partition_epoch < known.partition_epoch:
            return Result.IGNORED
        self.committed = committed
        self.pending = None
        return Result.APPLIED

    def apply_error(self, change: IsrChange, error: int) -> Result:
        """Apply a response with a Kafka error code, of the partition or of the request.

        Arguments:
            change: that was requested.
            error: the code.
        """
        if change is not self.pending:
            return Result.IGNORED
        if error in NOT_APPLIED:
            self.pending = None
            return Result.REVERTED
        return Result.WAITING if error in AWAIT_STATE else Result.REPEATED
