"""The group coordinator of a broker: creates runtime, service, metrics and housekeeping, and passes topic changes on.

The broker creates it when `__consumer_offsets` exists, or for the first request of a group, because its modules are a
sixth of the imports of a start.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.coordinators.group.group_metrics import GroupMetrics, GroupMetricsHost
from kafkalite.coordinators.group.housekeeping import GroupHousekeeping
from kafkalite.coordinators.group.regex_resolver import RegexHost, RegexResolver
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.coordinators.group.service import GroupService
from kafkalite.coordinators.group.settings import GroupHost, machine
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime, RuntimeHost
from kafkalite.metrics import Registry
from kafkalite.slicing import Slicer
from kafkalite.state.groups.counts import GroupCounts
from kafkalite.state.groups.member_memory import MemberMemory
from kafkalite.state.groups.registry import GROUP_TYPES

LOGGER = logging.getLogger("kafkalite.coordinators")
REFUSAL_LOG_S = 60.0


class CoordinatorHost(RuntimeHost, RegexHost, GroupHost, GroupMetricsHost, Protocol):
    """The broker, as the group coordinator needs it."""

    metrics: Registry
    slicer: Slicer

    @property
    def group_coordinator(self) -> "GroupCoordinator": ...


class GroupCoordinator:
    """The groups of a broker; loading starts immediately, in the background.

    Attributes:
        groups: serves requests.
        metrics: of all groups and of each; the totals are also gauges of the broker's registry.
    """

    def __init__(self, host: CoordinatorHost) -> None:
        counts = GroupCounts()
        self._host = host
        self._logged_s = -REFUSAL_LOG_S
        memory = MemberMemory(host.config.kafkalite_group_member_memory_max_bytes, self._log_refusal)
        self._runtime = CoordinatorRuntime(
            host,
            OFFSETS,
            partial(machine, host, counts, memory),
            GroupRecordSerde(),
            commit_timeout_ms=host.config.offsets_commit_timeout_ms,
        )
        self._runtime.ask = RegexResolver(host, self._runtime).resolve
        self._housekeeping = GroupHousekeeping(self._runtime, host.clock, host.config, host.slicer)
        self.groups = GroupService(self._runtime)
        self.metrics = GroupMetrics(host, self._runtime, counts)
        register(host)
        self._runtime.create_shards()
        self._housekeeping.start()

    def partition_for(self, key: str) -> int:
        """The partition of a group in `__consumer_offsets`."""
        return self._runtime.partition_for(key)

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Create `__consumer_offsets` unless it exists; calls `then` with 0 or COORDINATOR_NOT_AVAILABLE."""
        self._runtime.ensure_topic(then)

    def topic_changed(self, name: str) -> None:
        """A topic was created or has more partitions."""
        self._runtime.create_shards()
        self._housekeeping.topic_changed(name)

    def image_changed(self) -> None:
        """Other leaders and brokers change nothing for groups."""

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition of `__consumer_offsets`."""
        self._runtime.elected(partition)

    def resigned(self, partition: int) -> None:
        """This broker leads a partition of `__consumer_offsets` no more."""
        self._runtime.resigned(partition)

    def partitions_changed(self, count: int) -> None:
        """A cluster's `__consumer_offsets` has this number of partitions now; 0 = it does not exist."""
        self._runtime.partitions_changed(count)

    def topic_gone(self, name: str) -> None:
        """A topic was deleted."""
        self._housekeeping.topic_gone(name)

    def _log_refusal(self) -> None:
        """Log, at most once a minute, that joins are rejected by the limit on the memory of members."""
        now_s = self._host.clock.monotonic()
        if now_s - self._logged_s >= REFUSAL_LOG_S:
            self._logged_s = now_s
            LOGGER.warning(
                "members of classic groups use %s = %d bytes: joins are rejected with GROUP_MAX_SIZE_REACHED; "
                "remove members or raise the limit",
                "kafkalite.group.member.memory.max.bytes",
                self._host.config.kafkalite_group_member_memory_max_bytes,
            )

    def close(self) -> None:
        """Stop: pending and later requests fail with NOT_COORDINATOR."""
        self._housekeeping.close()
        self._runtime.close()


def register(host: CoordinatorHost) -> None:
    """Register the totals as gauges. Each read uses the current coordinator: a restarted broker has a new one."""
    gauge = host.metrics.gauge
    for group_type in GROUP_TYPES:
        count = partial(total_of_type, host, GroupMetrics.count, group_type)
        members = partial(total_of_type, host, GroupMetrics.members, group_type)
        gauge("kafkalite_groups", "Groups that this broker coordinates.", count, type=group_type)
        gauge("kafkalite_group_members", "Members of these groups.", members, type=group_type)
    gauge(
        "kafkalite_group_rebalances",
        "Generations and group epochs since the start.",
        lambda: host.group_coordinator.metrics.rebalances,
    )
    gauge(
        "kafkalite_group_commits",
        "Offsets committed since the start.",
        lambda: host.group_coordinator.metrics.commits,
    )
    gauge(
        "kafkalite_group_commits_per_second",
        "Offsets committed per second over the last minute.",
        lambda: host.group_coordinator.metrics.commits_per_s,
    )


def total_of_type(host: CoordinatorHost, read: Callable[[GroupMetrics, str], int], group_type: str) -> int:
    """A current total of one group type."""
    return read(host.group_coordinator.metrics, group_type)
