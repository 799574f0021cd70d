"""What must hold for the replicas of a partition: pure functions over disks, states of the tree and observations.

Each returns the violations that it finds, as texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.kit.replica_logs import ReplicaLog, StoredBatch, latest_values

NO_LEADER = -1
Partition = tuple[str, int]


class ObservedState(NamedTuple):
    """A state of a partition in the tree.

    Attributes:
        epochs: the broker epochs of the ISR, then of the eligible replicas; () = unknown.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    eligible: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()

    def epoch_of(self, broker_id: int) -> int:
        """The broker epoch in which a complete replica had every acknowledged record, -1 = unknown."""
        return dict(zip((*self.isr, *self.eligible), self.epochs, strict=False)).get(broker_id, -1)

    @property
    def complete(self) -> set[int]:
        """The replicas that must have every acknowledged record."""
        return {*self.isr, *self.eligible}


def leaders_outside_the_isr(states: Mapping[Partition, ObservedState]) -> list[str]:
    """A leader is a member of the in-sync replicas, which are never empty and name each broker once."""
    found = []
    for partition, state in states.items():
        if state.leader != NO_LEADER and state.leader not in state.isr:
            found.append(f"{partition}: leader {state.leader} is not in the ISR {state.isr}")
        if not state.isr or len(set(state.isr)) != len(state.isr):
            found.append(f"{partition}: the ISR is {state.isr}")
    return found


def epochs_that_do_not_grow(partition: Partition, states: Sequence[ObservedState]) -> list[str]:
    """The states of a partition in the order in which they were written: leader epochs never decrease, and another
    leader has a higher one.
    """
    found = []
    for before, after in pairwise(states):
        if after.leader_epoch < before.leader_epoch:
            found.append(f"{partition}: leader epoch {after.leader_epoch} follows {before.leader_epoch}")
        if after.leader != before.leader and after.leader_epoch <= before.leader_epoch:
            found.append(f"{partition}: leader {after.leader} has the epoch {after.leader_epoch} of {before.leader}")
    return found


class Leadership(NamedTuple):
    """A broker that accepts records of a partition in a leader epoch."""

    partition: Partition
    leader_epoch: int
    broker_id: int


def epochs_with_two_leaders(observed: Iterable[Leadership]) -> list[str]:
    """One broker accepts records per leader epoch."""
    leaders: dict[tuple[Partition, int], set[int]] = {}
    for each in observed:
        leaders.setdefault((each.partition, each.leader_epoch), set()).add(each.broker_id)
    return [
        f"{partition}: brokers {sorted(brokers)} lead in leader epoch {epoch}"
        for (partition, epoch), brokers in leaders.items()
        if len(brokers) > 1
    ]


def high_watermark_above_members(partition: Partition, high_watermark: int, ends: Mapping[int, int]) -> list[str]:
    """Each in-sync replica has what a response says is committed.

    Arguments:
        partition: the partition.
        high_watermark: of a response.
        ends: the log ends of the in-sync replicas of the tree, by broker id.
    """
    return [
        f"{partition}: a response has the high watermark {high_watermark}, the log of broker {broker_id} ends at {end}"
        for broker_id, end in ends.items()
        if end < high_watermark
    ]


def truncations_of_committed(
    partition: Partition, broker_id: int, end_offset: int, high_watermark: int, *, member: bool
) -> list[str]:
    """An in-sync replica removes no committed record, also if it would fetch it again.

    Arguments:
        partition: the partition.
        broker_id: of the replica that is truncated.
        end_offset: from which on its records are removed.
        high_watermark: the highest one that a leader has shown.
        member: whether the replica is in the ISR of the tree.
    """
    if not member or end_offset >= high_watermark:
        return []
    return [f"{partition}: broker {broker_id} is in sync, and truncates to {end_offset} below {high_watermark}"]


def batches_of_decreasing_epochs(partition: Partition, broker_id: int, log: ReplicaLog) -> list[str]:
    """The leader epochs of a log never decrease, and its offsets grow."""
    found = []
    for before, after in pairwise(log.batches):
        if after.leader_epoch < before.leader_epoch or after.base_offset <= before.last_offset:
            found.append(f"{partition}: in the log of broker {broker_id}, {named(after)} follows {named(before)}")
    return found


def different_batches_of_an_epoch(partition: Partition, logs: Mapping[int, ReplicaLog]) -> list[str]:
    """One broker writes per leader epoch: batches at one offset with one leader epoch are the same on all replicas.

    Also above the high watermark. For partitions that are not compacted.
    """
    known: dict[tuple[int, int], tuple[int, StoredBatch]] = {}
    found = []
    for broker_id, log in logs.items():
        for batch in log.batches:
            first, other = known.setdefault((batch.base_offset, batch.leader_epoch), (broker_id, batch))
            if other != batch:
                found.append(f"{partition}: {named(batch)} differs on brokers {first} and {broker_id}")
    return found


def different_replicas(
    partition: Partition, logs: Mapping[int, ReplicaLog], high_watermark: int, *, compacted: bool
) -> list[str]:
    """Replicas are equal below the high watermark.

    Arguments:
        partition: the partition.
        logs: those of its replicas, by broker id.
        high_watermark: of the leader.
        compacted: the replicas have the same last value of each key, their batches may differ.
    """
    return [
        *high_watermark_above_members(partition, high_watermark, {at: log.end_offset for at, log in logs.items()}),
        *(different_values if compacted else different_batches)(partition, logs, high_watermark),
    ]


def different_batches(partition: Partition, logs: Mapping[int, ReplicaLog], high_watermark: int) -> Iterator[str]:
    start = max((log.start_offset for log in logs.values()), default=0)

    def shared(log: ReplicaLog) -> list[StoredBatch]:
        return [each for each in log.batches if each.base_offset >= start and each.last_offset < high_watermark]

    (first, expected), *others = [(broker_id, shared(log)) for broker_id, log in logs.items()]
    for broker_id, batches in others:
        pairs = zip(expected, batches, strict=False)
        at = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(batches)))
        if batches != expected:
            texts = [named(each[at]) if at < len(each) else "nothing" for each in (expected, batches)]
            yield f"{partition}: broker {first} has {texts[0]} where broker {broker_id} has {texts[1]}"


def different_values(partition: Partition, logs: Mapping[int, ReplicaLog], high_watermark: int) -> Iterator[str]:
    (first, expected), *others = [(at, latest_values(log, high_watermark)) for at, log in logs.items()]
    for broker_id, values in others:
        keys = [key for key in expected.keys() | values.keys() if expected.get(key) != values.get(key)]
        if keys:
            text = ", ".join(sorted(map(repr, keys))[:3])
            yield f"{partition}: brokers {first} and {broker_id} have different last values of {len(keys)} keys: {text}"


def commits_that_go_back(group: str, offsets: Sequence[int]) -> list[str]:
    """The offsets that a group has committed for a partition, in the order of the log, never go back.

    Arguments:
        group: its member commits rising offsets.
        offsets: in the order of the log.
    """
    pairs = pairwise(offsets)
    return [f"{group}: the commit of {after} follows that of {before}" for before, after in pairs if after < before]


def incomplete(states: Mapping[Partition, ObservedState], replicas: Mapping[Partition, Sequence[int]]) -> list[str]:
    """Every replica is in sync, and every partition has a leader."""
    return [
        f"{partition}: leader {state.leader}, ISR {state.isr}, replicas {tuple(replicas[partition])}"
        for partition, state in states.items()
        if state.leader == NO_LEADER or set(state.isr) != set(replicas[partition])
    ]


def named(batch: StoredBatch) -> str:
    return f"batch {batch.base_offset} to {batch.last_offset} of leader epoch {batch.leader_epoch}"
