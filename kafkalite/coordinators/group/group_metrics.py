"""Numbers of the groups of a broker, for whoever watches it: totals in the registry, and each group by itself.

```python
for group in broker.group_coordinator.numbers.groups():
    print(group.name, group.members, sum(each.lag for each in group.partitions))
```
Laws: nothing is kept for it but two counts, so a group costs nothing until somebody looks; a look changes nothing, and
sees what is applied, which may be a moment ahead of what is committed. Group names are texts of clients: they are no
labels of the registry.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kafkalite.clock import Clock
from kafkalite.cluster.image import UNASSIGNED_ID
from kafkalite.cluster.replicas import Replicas
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.state.groups.counts import GroupCounts
from kafkalite.state.groups.group import NO_GENERATION
from kafkalite.state.groups.records import CLASSIC
from kafkalite.state.groups.shard import SIMPLE_GROUP, GroupShard

__all__ = ["GroupMetrics", "GroupMetricsHost", "PartitionLag", "Rate", "SingleGroupMetrics"]

RATE_WINDOW_S = 60.0
RATE_STEP_S = 1.0


class GroupMetricsHost(Protocol):
    """The broker around."""

    replicas: Replicas

    @property
    def clock(self) -> Clock: ...


class PartitionLag(NamedTuple):
    """How far a group is in a partition: `lag` records are committed in the log and not yet read by the group."""

    topic: str
    partition: int
    committed: int
    log_end: int
    lag: int


class SingleGroupMetrics(NamedTuple):
    """One group now. `generation` is the epoch of a consumer group, -1 = there has been none."""

    name: str
    group_type: str
    state: str
    members: int
    generation: int
    partitions: tuple[PartitionLag, ...]


class Rate:
    """How fast a count grows, from when somebody looks: over the last minute, or since the first look.

    Looks less than a second apart are one, so that several readers do not disturb each other.
    """

    def __init__(self, now_s: float, count: int = 0) -> None:
        self._looks = deque([(now_s, count)])

    def per_second(self, now_s: float, count: int) -> float:
        """The growth per second; `now_s` on a monotonic clock."""
        looks = self._looks
        if now_s - looks[-1][0] >= RATE_STEP_S:
            looks.append((now_s, count))
        while len(looks) > 1 and now_s - looks[1][0] >= RATE_WINDOW_S:
            looks.popleft()
        began_s, began = looks[0]
        return (count - began) / (now_s - began_s) if now_s > began_s else 0.0


class GroupMetrics:
    """The numbers of all groups that a broker coordinates.

    Arguments:
        host: log ends come from its partitions.
        runtime: the shards.
        counts: what the machines count.
    """

    def __init__(self, host: GroupMetricsHost, runtime: CoordinatorRuntime[GroupShard], counts: GroupCounts) -> None:
        self._host = host
        self._runtime = runtime
        self._counts = counts
        self._rate = Rate(host.clock.monotonic())

    @property
    def rebalances(self) -> int:
        """Rebalances since the start, of all groups."""
        return self._counts.rebalances

    @property
    def commits(self) -> int:
        """Offsets committed since the start, each partition by itself."""
        return self._counts.commits

    @property
    def commits_per_s(self) -> float:
        """Offsets committed per second, over the last minute of looks."""
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
        """Each group, one at a time: whoever has thousands may pause between them."""
        for machine in self._machines():
            for name in machine.names():
                yield self._of(machine, name)

    def group(self, name: str) -> SingleGroupMetrics | None:
        """One group; None where it is not known, or not yet loaded."""
        shard = self._runtime.shard_for(name)
        machine = self._runtime.machine(shard) if shard in self._runtime.shards() else None
        if machine is None or (name not in machine.registry and name not in machine.offsets):
            return None
        return self._of(machine, name)

    def _machines(self) -> list[GroupShard]:
        machines = [self._runtime.machine(shard) for shard in self._runtime.shards()]
        return [machine for machine in machines if machine is not None]

    def _of(self, machine: GroupShard, name: str) -> SingleGroupMetrics:
        lags = tuple(self._lags(machine, name))
        group_type = machine.registry.type_of(name)
        if group_type is None:
            return SingleGroupMetrics(name, CLASSIC, SIMPLE_GROUP.state, 0, NO_GENERATION, lags)
        group = group_type.groups[name]
        return SingleGroupMetrics(
            name, group_type.name, group.state.value, group.member_count, group.generation_id, lags
        )

    def _lags(self, machine: GroupShard, name: str) -> Iterator[PartitionLag]:
        for found in machine.offsets.fetch(name, None, require_stable=False):
            partition = self._host.replicas.partition(found.topic, UNASSIGNED_ID, found.partition, by_id=False)
            if not isinstance(partition, int):
                log_end = partition.high_watermark
                yield PartitionLag(found.topic, found.partition, found.offset, log_end, max(0, log_end - found.offset))
