"""Metrics of the groups of a broker: totals, and state, members and lag of each group.

```python
for group in broker.group_coordinator.metrics.groups():
    print(group.name, group.members, sum(each.lag for each in group.partitions))
```
Only two counters are maintained; everything else is computed when it is read. A read sees applied records, which may
not be committed yet. Group names are chosen by clients, so they are no labels of the registry.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kafkalite.clock import Clock
from kafkalite.cluster.metadata.image import UNASSIGNED_ID
from kafkalite.cluster.replicas import Replicas
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.counts import GroupCounts
from kafkalite.state.groups.group import NO_GENERATION
from kafkalite.state.groups.machine import SIMPLE_GROUP, GroupMachine
from kafkalite.state.groups.records import CLASSIC

RATE_WINDOW_S = 60.0
RATE_STEP_S = 1.0


class GroupMetricsHost(Protocol):
    """The broker, as group metrics need it."""

    replicas: Replicas

    @property
    def clock(self) -> Clock: ...


class PartitionLag(NamedTuple):
    """The offsets of a group in a partition: `lag` = log end (high watermark) minus committed offset."""

    topic: str
    partition: int
    committed: int
    log_end: int
    lag: int


class SingleGroupMetrics(NamedTuple):
    """The current state of a group. `generation` is the group epoch of a consumer group, -1 = none."""

    name: str
    group_type: str
    state: str
    members: int
    generation: int
    partitions: tuple[PartitionLag, ...]


class Rate:
    """The growth of a counter per second, over the last minute or since the first read.

    Reads within a second count as one, so that several readers do not affect each other.

    Arguments:
        now_s: on a monotonic clock.
        count: the counter now.
    """

    def __init__(self, now_s: float, count: int = 0) -> None:
        self._reads = deque([(now_s, count)])

    def per_second(self, now_s: float, count: int) -> float:
        """The growth per second; `now_s` on a monotonic clock."""
        reads = self._reads
        if now_s - reads[-1][0] >= RATE_STEP_S:
            reads.append((now_s, count))
        while len(reads) > 1 and now_s - reads[1][0] >= RATE_WINDOW_S:
            reads.popleft()
        first_s, first = reads[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0


class GroupMetrics:
    """The metrics of all groups that a broker coordinates.

    Arguments:
        host: the broker, for the high watermarks of its partitions.
        runtime: the shards.
        counts: the counters of the machines.
    """

    def __init__(self, host: GroupMetricsHost, runtime: CoordinatorRuntime[GroupMachine], counts: GroupCounts) -> None:
        self._host = host
        self._runtime = runtime
        self._counts = counts
        self._rate = Rate(host.clock.monotonic())

    @property
    def rebalances(self) -> int:
        """Rebalances of all groups since the start."""
        return self._counts.rebalances

    @property
    def commits(self) -> int:
        """Offsets committed since the start; each partition counts."""
        return self._counts.commits

    @property
    def commits_per_s(self) -> float:
        """Offsets committed per second over the last minute."""
        return self._rate.per_second(self._host.clock.monotonic(), self._counts.commits)

    def count(self, group_type: str) -> int:
        """The number of groups of a type; groups that have only offsets are classic."""
        groups = sum(len(machine.registry.types[group_type].groups) for machine in self._machines())
        simple = sum(len(machine.simple()) for machine in self._machines()) if group_type == CLASSIC else 0
        return groups + simple

    def members(self, group_type: str) -> int:
        """The number of members of all groups of a type."""
        by_name = (machine.registry.types[group_type].groups for machine in self._machines())
        return sum(group.member_count for groups in by_name for group in groups.values())

    def groups(self) -> Iterator[SingleGroupMetrics]:
        """Yield each group, so that a reader of thousands of groups can pause between them."""
        for machine in self._machines():
            for name in machine.names():
                yield self._of(machine, name)

    def group(self, name: str) -> SingleGroupMetrics | None:
        """One group; None if it does not exist or its shard is not loaded."""
        partition = self._runtime.partition_for(name)
        machine = self._runtime.machine(partition) if partition in self._runtime.partitions() else None
        if machine is None or (name not in machine.registry and name not in machine.offsets):
            return None
        return self._of(machine, name)

    def _machines(self) -> list[GroupMachine]:
        machines = [self._runtime.machine(partition) for partition in self._runtime.partitions()]
        return [machine for machine in machines if machine is not None]

    def _of(self, machine: GroupMachine, name: str) -> SingleGroupMetrics:
        lags = tuple(self._lags(machine, name))
        group_type = machine.registry.type_of(name)
        if group_type is None:
            return SingleGroupMetrics(name, CLASSIC, SIMPLE_GROUP.state, 0, NO_GENERATION, lags)
        group = group_type.groups[name]
        return SingleGroupMetrics(
            name, group_type.name, group.state.value, group.member_count, group.generation_id, lags
        )

    def _lags(self, machine: GroupMachine, name: str) -> Iterator[PartitionLag]:
        for found in machine.offsets.fetch(name, None, require_stable=False):
            partition = self._host.replicas.partition(found.topic, UNASSIGNED_ID, found.partition, by_id=False)
            if not isinstance(partition, KafkaErrorCode):
                log_end = partition.high_watermark
                yield PartitionLag(found.topic, found.partition, found.offset, log_end, max(0, log_end - found.offset))
