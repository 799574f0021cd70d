"""Gives every assigned partition a valid position: its committed offset, an offset reset, or a validated position.

Pure: no I/O, no clock; the wall time is a parameter. Invariants:
1. An outcome is applied only if the partition still waits for it: a seek, a new assignment or another reset in the
   meantime wins.
2. A partition without a committed offset is reset (`offset_reset`); without a policy `take_error` names it. One
   that has had a position returns to the first one instead.
3. A position beyond the end of its epoch in the leader's log is behind a truncation (KIP-320): it moves to the end of
   that epoch, or without a policy `take_error` names both offsets.
Sources: OffsetFetcher.java, OffsetFetcherUtils.java of Apache Kafka 4.3.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaError, KafkaErrorCode, LogTruncationError
from kafkalite.model import TopicPartition
from kafkalite_sdk.client.cluster_view import NO_EPOCH, ClusterView
from kafkalite_sdk.consumer.offsets.leader_lookups import EpochEnd, EpochLookups, OffsetLookups
from kafkalite_sdk.consumer.offsets.offset_reset import (
    NO_OFFSET,
    Loss,
    ResetPolicy,
    missing_offset_error,
    position_found,
    replacement,
)
from kafkalite_sdk.consumer.offsets.positions import PartitionState, Positions, changed_states
from kafkalite_sdk.values import ListedOffset

if TYPE_CHECKING:
    from kafkalite_sdk.consumer.offsets.committed_offsets import Committed, CommittedOffsets

UNSUPPORTED_VERSION = KafkaErrorCode.UNSUPPORTED_VERSION
Need = tuple[int, ResetPolicy | None, bool]


def _need(state: PartitionState) -> Need:
    """What a partition waits for: it changes with each seek."""
    return state.position, state.reset, state.validating


class OffsetResolver:
    """Asks for what the partitions of one consumer need.

    Arguments:
        positions: the assigned partitions.
        view: knows the leader epochs.
        offsets, epochs: questions to the leaders.
        committed: questions to the coordinator; None = the consumer has no group.
        moved: called with partitions whose prefetched records are not valid any more.
    """

    def __init__(
        self,
        positions: Positions,
        view: ClusterView,
        offsets: OffsetLookups,
        epochs: EpochLookups,
        committed: "CommittedOffsets | None",
        moved: Callable[[Iterable[TopicPartition]], object],
    ) -> None:
        self._positions = positions
        self._view = view
        self._offsets = offsets
        self._epochs = epochs
        self._committed = committed
        self._moved = moved
        self._waiting: set[PartitionState] = set()
        self._errors: dict[PartitionState, tuple[KafkaError, Need]] = {}
        self._changed = positions.watch()
        self._origins: dict[PartitionState, int] = {}  # the first position of each partition
        positions.on_move.append(self._remember_origin)

    def advance(self, wall_ms: int) -> None:
        """Ask for everything that a partition needs; `wall_ms` is the wall time."""
        if not self._changed:
            return
        with changed_states(self._changed) as changed:
            uncommitted = [state for state in changed if self._advance(state, wall_ms)]
            if uncommitted:
                self._find_committed(uncommitted)

    def _advance(self, state: PartitionState, wall_ms: int) -> bool:
        """Ask for what a partition needs; return whether that is its committed offset."""
        if not self._current(state) or state in self._waiting or self._has_error(state):
            return False
        if state.needs_committed:
            return True
        if state.reset is not None:
            self._find_reset(state, state.reset, wall_ms)
        elif state.validating:
            self._validate(state)
        return False

    def take_error(self, partition: TopicPartition | None = None) -> KafkaError | None:
        """Return an error of a partition; its next `advance` tries again. None = there is none.

        Arguments:
            partition: its error only; None = that of any partition.
        """
        for state in [each for each in self._errors if partition in (None, each.topic_partition)]:
            error, need = self._errors.pop(state)
            self._changed.add(state)
            if need == _need(state) and self._current(state):
                return error
        return None

    def _remember_origin(self, state: PartitionState) -> None:
        if not self._current(state):
            self._origins.pop(state, None)
        elif state.position >= 0:
            self._origins.setdefault(state, state.position)

    def _fail(self, state: PartitionState, error: KafkaError) -> None:
        self._errors[state] = error, _need(state)

    def _has_error(self, state: PartitionState) -> bool:
        """Whether an error of a partition is not raised yet; one before a seek does not count any more."""
        if state not in self._errors:
            return False
        if self._errors[state][1] == _need(state):
            return True
        del self._errors[state]
        return False

    def metadata_changed(self) -> None:
        """Compare the positions with the leader epochs that Metadata has reported."""
        for name, state in self._positions.states.items():
            self._positions.leader_epoch_changed(state, self._view.leader_epoch(*name))

    def waits(self, *, elections: bool = False) -> bool:
        """Whether a partition waits for its position, and has not failed.

        Arguments:
            elections: also a partition whose leader is not known: it is new, or offline.
        """
        states = self._positions.states.values()
        missing = (state for state in states if state.position < 0 and not state.revoking)
        return any(
            (elections or self._view.leader(*each.topic_partition) >= 0) and not self._has_error(each)
            for each in missing
        )

    def _current(self, state: PartitionState) -> bool:
        return self._positions.states.get(state.topic_partition) is state

    def _ended(self, state: PartitionState) -> bool:
        """A question about a partition has ended; return whether the partition is still assigned."""
        self._waiting.discard(state)
        self._changed.add(state)
        return self._current(state)

    def _find_committed(self, states: list[PartitionState]) -> None:
        if self._committed is None:
            for state in states:
                self._begin_reset(state)
                self._changed.add(state)
            return
        by_topic: dict[str, list[PartitionState]] = {}  # a topic with an error delays no other
        for state in states:
            by_topic.setdefault(state.topic_partition.topic, []).append(state)
        for each in by_topic.values():
            self._committed.fetch([state.topic_partition for state in each], partial(self._committed_found, each))
            self._waiting.update(each)

    def _committed_found(self, states: list[PartitionState], outcome: "Committed | KafkaError") -> None:
        for state in states:
            if not self._ended(state) or not state.needs_committed:
                continue
            if isinstance(outcome, KafkaError):
                self._fail(state, outcome)
            elif (offset := outcome[state.topic_partition]) is not None:
                state.committed = offset.offset
                self._positions.seek(state, offset.offset, offset.leader_epoch)
            else:
                self._begin_reset(state)

    def _begin_reset(self, state: PartitionState) -> None:
        found = replacement(self._positions.policy, Loss.MISSING, self._origins.get(state, NO_OFFSET))
        if found is None:
            self._fail(state, missing_offset_error(state.topic_partition))
        else:
            self._move(state, found)

    def _move(self, state: PartitionState, found: int | ResetPolicy) -> None:
        if isinstance(found, int):
            self._positions.seek(state, found)
        else:
            self._positions.begin_reset(state, found)

    def _find_reset(self, state: PartitionState, policy: ResetPolicy, wall_ms: int) -> None:
        done = partial(self._reset_found, state, policy)
        self._offsets.find(state.topic_partition, policy.timestamp(wall_ms), done)
        self._waiting.add(state)

    def _reset_found(self, state: PartitionState, policy: ResetPolicy, outcome: ListedOffset | KafkaError) -> None:
        if not self._ended(state) or state.reset is not policy:
            return
        if isinstance(outcome, KafkaError):
            self._fail(state, outcome)
        else:
            self._move(state, position_found(outcome.offset))

    def _validate(self, state: PartitionState) -> None:
        current = self._view.leader_epoch(*state.topic_partition)
        if current == NO_EPOCH and state.topic_partition.topic in self._view.topics:
            self._positions.validated(state, NO_EPOCH)  # the broker has no leader epochs
            return
        done = partial(self._epoch_found, state, state.position, current)
        self._epochs.find(state.topic_partition, state.leader_epoch, done)
        self._waiting.add(state)

    def _epoch_found(self, state: PartitionState, position: int, current: int, outcome: EpochEnd | KafkaError) -> None:
        if not self._ended(state) or not state.validating or state.position != position:
            return
        if isinstance(outcome, KafkaError):
            if outcome.code == UNSUPPORTED_VERSION:
                self._positions.validated(state, current)
            else:
                self._fail(state, outcome)
        elif outcome.end_offset >= position:
            self._positions.validated(state, current)
        else:
            self._truncated(state, outcome, current)

    def _truncated(self, state: PartitionState, end: EpochEnd, current: int) -> None:
        self._moved([state.topic_partition])
        found = replacement(self._positions.policy, Loss.TRUNCATED, end.end_offset)
        if found is None:
            text = (
                f"{state.topic_partition} was truncated: position {state.position} of leader epoch"
                f" {state.leader_epoch}, end of that epoch {end.end_offset}; seek to continue"
            )
            self._fail(state, LogTruncationError(text))
        elif isinstance(found, ResetPolicy):
            self._positions.begin_reset(state, found)
        else:
            self._positions.seek(state, found, end.leader_epoch)
            self._positions.validated(state, current)
