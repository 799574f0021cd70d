"""The partitions that a consumer reads, and the offset of the next record of each.

Pure: no I/O, no clock. Invariants:
1. A partition is in exactly one state: it has a position, or it waits for its committed offset (`position` is
   NO_POSITION, `reset` is None), or it waits for an offset reset (`reset` is a policy).
2. A partition that is assigned again gets a new PartitionState: a response to a request of the former assignment is
   recognised by the identity of its state.
3. `changes` increases whenever `fetchable` of any partition may have changed, except by time; the sets of `watch` get
   that partition.
4. `on_move` is called after each change of a position that is not a read: a seek, a reset, a truncation, and the end of
   an assignment. State by offset is invalid then, as other records may have these offsets afterwards.
Sources: SubscriptionState.java of Apache Kafka 4.3; KIP-320, KIP-392.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter

from kafkalite.model import TopicPartition
from kafkalite_sdk.client.cluster_view import NO_EPOCH
from kafkalite_sdk.consumer.offsets.offset_reset import ResetPolicy
from kafkalite_sdk.values import OffsetAndMetadata

NO_POSITION = NO_REPLICA = UNKNOWN = -1


class PartitionState:
    """One assigned partition.

    Attributes:
        topic_partition: its name.
        position: offset of the next record that `poll` returns; NO_POSITION = none yet.
        committed: offset that is known to be committed; UNKNOWN = none is.
        leader_epoch: epoch of the record before the position (KIP-320); NO_EPOCH = unknown.
        held: the stream of the partition has enough records; prefetched records are kept.
        paused: by the application; prefetched records are kept.
        revoking: the group takes the partition away; nothing is fetched or returned any more.
        reset: where to begin, found by ListOffsets; None = no reset pending.
        validating: the position must be compared with the log of a new leader before the next fetch (KIP-320).
        validated_epoch: leader epoch for which the position is valid; NO_EPOCH = none.
        high_watermark, last_stable_offset, log_start: as the last Fetch response reports them, UNKNOWN = -1.
        preferred_replica: broker id of a replica that is nearer than the leader (KIP-392); NO_REPLICA = the leader.
        preferred_until: when the leader is asked again, in seconds of the loop's clock.
        retry_at: nothing is fetched before, in seconds of the loop's clock.
    """

    __slots__ = (
        "committed",
        "held",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start",
        "paused",
        "position",
        "preferred_replica",
        "preferred_until",
        "reset",
        "retry_at",
        "revoking",
        "topic_partition",
        "validated_epoch",
        "validating",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.position = NO_POSITION
        self.committed = UNKNOWN
        self.leader_epoch = NO_EPOCH
        self.held = False
        self.paused = False
        self.revoking = False
        self.reset: ResetPolicy | None = None
        self.validating = False
        self.validated_epoch = NO_EPOCH
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start = UNKNOWN
        self.preferred_replica = NO_REPLICA
        self.preferred_until = 0.0
        self.retry_at = 0.0

    @property
    def readable(self) -> bool:
        """Whether prefetched records may be returned."""
        return self.position >= 0 and not self.paused and not self.held and not self.revoking

    def fetchable(self, now: float) -> bool:
        """Whether records may be fetched; `now` in seconds of the loop's clock."""
        return (
            self.position >= 0
            and not self.paused
            and not self.held
            and not self.revoking
            and not self.validating
            and self.retry_at <= now
        )

    @property
    def needs_committed(self) -> bool:
        """Whether the partition waits for its committed offset."""
        return self.position < 0 and self.reset is None and not self.revoking


class Positions:
    """The assigned partitions.

    Arguments:
        policy: where to begin without a valid offset; None = that is an error.

    Attributes:
        states: by partition, in the order of assignment.
        changes: see invariant 3.
        on_move: see invariant 4; called with the partition.
    """

    def __init__(self, policy: ResetPolicy | None) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.changes = 0
        self.policy = policy
        self.on_move: list[Callable[[PartitionState], object]] = []
        self._watched: list[set[PartitionState]] = []

    def watch(self) -> set[PartitionState]:
        """Return a set that gets each partition that changes, removed ones included; `changed_states` empties it."""
        changed = set(self.states.values())
        self._watched.append(changed)
        return changed

    def changed(self, *states: PartitionState) -> None:
        """Attributes of partitions have changed."""
        self.changes += 1
        for watched in self._watched:
            watched.update(states)

    def _moved(self, state: PartitionState) -> None:
        for moved in self.on_move:
            moved(state)
        self.changed(state)

    def assign(self, partitions: Iterable[TopicPartition]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Replace the assignment; partitions in both keep their state. Return those added and those removed."""
        wanted = dict.fromkeys(_exact(each) for each in partitions)
        removed = [each for each in self.states if each not in wanted]
        added = [each for each in wanted if each not in self.states]
        ended = [self.states.pop(each) for each in removed]
        for state in ended:
            self._moved(state)
        for each in added:
            self.states[each] = PartitionState(each)
        self.changed(*ended, *(self.states[each] for each in added))
        return added, removed

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Offsets were committed, of assigned partitions or of others."""
        for each, offset in offsets.items():
            if each in self.states:
                self.states[each].committed = offset.offset

    def seek(self, state: PartitionState, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Set a position.

        Arguments:
            state: of the partition.
            offset: of the next record.
            leader_epoch: of the record before it, if known: the position is validated against the leader's log.
        """
        state.position = offset
        state.leader_epoch = leader_epoch
        state.reset = None
        state.validating = leader_epoch != NO_EPOCH
        state.validated_epoch = NO_EPOCH
        state.preferred_replica = NO_REPLICA
        state.retry_at = 0.0
        self._moved(state)

    def begin_reset(self, state: PartitionState, policy: ResetPolicy) -> None:
        """Drop a position; the partition waits for the offset that ListOffsets finds."""
        state.position = NO_POSITION
        state.leader_epoch = NO_EPOCH
        state.reset = policy
        state.validating = False
        state.preferred_replica = NO_REPLICA
        state.retry_at = 0.0
        self._moved(state)

    def return_to_committed(self, state: PartitionState) -> None:
        """Drop a position; the partition waits for its committed offset."""
        state.position = NO_POSITION
        state.leader_epoch = NO_EPOCH
        state.reset = None
        state.validating = False
        state.retry_at = 0.0
        self._moved(state)

    def pause(self, state: PartitionState) -> None:
        """Fetch and return nothing of a partition."""
        state.paused = True
        self.changed(state)

    def resume(self, state: PartitionState) -> None:
        """Fetch and return records of a paused partition again."""
        state.paused = False
        self.changed(state)

    def hold(self, states: Iterable[PartitionState], *, held: bool) -> None:
        """Fetch and return nothing of partitions whose stream has enough records, or do so again."""
        changed = [state for state in states if state.held is not held]
        for state in changed:
            state.held = held
        self.changed(*changed)

    def begin_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing of partitions that the group takes away."""
        self._set_revoking(partitions, revoking=True)

    def end_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """The group has assigned partitions again that it had taken away."""
        self._set_revoking(partitions, revoking=False)

    def _set_revoking(self, partitions: Iterable[TopicPartition], *, revoking: bool) -> None:
        changed = [self.states[each] for each in partitions if each in self.states]
        for state in changed:
            state.revoking = revoking
        self.changed(*changed)

    def leader_epoch_changed(self, state: PartitionState, leader_epoch: int) -> None:
        """Metadata reports a leader: validate the position if its epoch is new and that of the position is known."""
        if state.validated_epoch < leader_epoch and state.position >= 0 and state.leader_epoch != NO_EPOCH:
            state.validating = True
            self.changed(state)

    def validated(self, state: PartitionState, leader_epoch: int) -> None:
        """The log of the leader contains the record before the position, or the check is not possible."""
        state.validating = False
        state.validated_epoch = leader_epoch
        self.changed(state)


@contextmanager
def changed_states(watched: set[PartitionState]) -> Iterator[list[PartitionState]]:
    """Yield the partitions in a set of `Positions.watch` in the order of their names, and empty the set.

    After an exception within the block they are in the set again.
    """
    changed = sorted(watched, key=attrgetter("topic_partition"))
    watched.clear()
    try:
        yield changed
    except BaseException:
        watched.update(changed)
        raise


def _exact(partition: TopicPartition) -> TopicPartition:
    """A partition whose topic is an exact str, not a StrEnum: the compiled modules take nothing else."""
    topic, number = partition
    return partition if type(topic) is str else TopicPartition(str.__str__(topic), number)
