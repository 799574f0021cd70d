"""Everything that coordinates groups on a broker, made in one go, and told in one place what changes around it.

The broker makes it when `__consumer_offsets` is there, or when the first client asks for a group: these rooms are a
sixth of what a start imports.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.cluster.internal_topics import OFFSETS
from kafkalite.coordinators.group.group_metrics import GroupMetrics, GroupMetricsHost
from kafkalite.coordinators.group.offset_expiration import OffsetExpiration
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

__all__ = ["CoordinatorHost", "GroupCoordinator"]

LOGGER = logging.getLogger("kafkalite.coordinators")
REFUSAL_LOG_S = 60.0


class CoordinatorHost(RuntimeHost, RegexHost, GroupHost, GroupMetricsHost, Protocol):
    """The broker around."""

    metrics: Registry
    slicer: Slicer

    @property
    def group_coordinator(self) -> "GroupCoordinator": ...


class GroupCoordinator:
    """The groups of a broker; loading begins at once, in the background.

    Attributes:
        groups: what requests ask.
        numbers: what watchers ask; the totals are gauges of the broker's registry, too.
    """

    def __init__(self, host: CoordinatorHost) -> None:
        counts = GroupCounts()
        self._host = host
        self._logged_s = -REFUSAL_LOG_S
        memory = MemberMemory(host.config.kafkalite_group_member_memory_max_bytes, self._log_refusal)
        self._runtime = CoordinatorRuntime(host, OFFSETS, partial(machine, host, counts, memory), GroupRecordSerde())
        self._runtime.ask = RegexResolver(host, self._runtime).resolve
        self._upkeep = OffsetExpiration(self._runtime, host.clock, host.config, host.slicer)
        self.groups = GroupService(self._runtime)
        self.numbers = GroupMetrics(host, self._runtime, counts)
        register(host)
        self._runtime.create_shards()
        self._upkeep.start()

    def topic_changed(self, name: str) -> None:
        """A topic is new or has grown."""
        self._runtime.create_shards()
        self._upkeep.topic_changed(name)

    def topic_gone(self, name: str) -> None:
        """A topic was deleted."""
        self._upkeep.topic_gone(name)

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
        """Take no request any more; whoever waits hears NOT_COORDINATOR."""
        self._upkeep.close()
        self._runtime.close()


def register(host: CoordinatorHost) -> None:
    """Put the totals into the broker's registry. A broker that is started again has other groups: each read asks it."""
    gauge = host.metrics.gauge
    for group_type in GROUP_TYPES:
        count = partial(total_of_type, host, GroupMetrics.count, group_type)
        members = partial(total_of_type, host, GroupMetrics.members, group_type)
        gauge("kafkalite_groups", "Groups that this broker coordinates.", count, type=group_type)
        gauge("kafkalite_group_members", "Members of these groups.", members, type=group_type)
    gauge(
        "kafkalite_group_rebalances",
        "Generations and epochs that groups have begun since the start.",
        lambda: host.group_coordinator.numbers.rebalances,
    )
    gauge(
        "kafkalite_group_commits",
        "Offsets that groups have committed since the start.",
        lambda: host.group_coordinator.numbers.commits,
    )
    gauge(
        "kafkalite_group_commits_per_second",
        "The same per second, over the last minute.",
        lambda: host.group_coordinator.numbers.commits_per_s,
    )


def total_of_type(host: CoordinatorHost, read: Callable[[GroupMetrics, str], int], group_type: str) -> int:
    """A current total of one group type."""
    return read(host.group_coordinator.numbers, group_type)
