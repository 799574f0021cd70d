"""Everything that coordinates groups on a broker, made in one go, and told in one place what changes around it.

The broker makes it when `__consumer_offsets` is there, or when the first client asks for a group: these rooms are a
sixth of what a start imports.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.cluster.internal import OFFSETS
from kafkalite.coordinators.group_settings import GroupHost, machine
from kafkalite.coordinators.groups import Groups
from kafkalite.coordinators.numbers import KINDS, Numbers, NumbersHost
from kafkalite.coordinators.patterns import PatternHost, Patterns
from kafkalite.coordinators.runtime import Host, Runtime
from kafkalite.coordinators.stored import GroupCodec
from kafkalite.coordinators.upkeep import Upkeep
from kafkalite.metrics import Registry
from kafkalite.slicing import Slicer
from kafkalite.state.group_counts import GroupCounts
from kafkalite.state.member_memory import MemberMemory

__all__ = ["CoordinatorHost", "GroupCoordinator"]

LOGGER = logging.getLogger("kafkalite.coordinators")
REFUSAL_LOG_S = 60.0


class CoordinatorHost(Host, PatternHost, GroupHost, NumbersHost, Protocol):
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
        self._runtime = Runtime(host, OFFSETS, partial(machine, host, counts, memory), GroupCodec())
        self._runtime.ask = Patterns(host, self._runtime).ask
        self._upkeep = Upkeep(self._runtime, host.clock, host.config, host.slicer)
        self.groups = Groups(self._runtime)
        self.numbers = Numbers(host, self._runtime, counts)
        register(host)
        self._runtime.follow()
        self._upkeep.start()

    def topic_changed(self, name: str) -> None:
        """A topic is new or has grown."""
        self._runtime.follow()
        self._upkeep.topic_changed(name)

    def topic_gone(self, name: str) -> None:
        """A topic was deleted."""
        self._upkeep.topic_gone(name)

    def settings_changed(self) -> None:
        """The settings of the broker or of a group have changed."""
        self._upkeep.settings_changed()

    def _log_refusal(self) -> None:
        """Log, at most once a minute, that joins are rejected by the limit on the memory of members."""
        now_s = self._host.clock.monotonic()
        if now_s - self._logged_s >= REFUSAL_LOG_S:
            self._logged_s = now_s
            LOGGER.warning(
                "joins are rejected with GROUP_MAX_SIZE_REACHED: members of classic groups occupy %s = %d bytes; "
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
    for kind in KINDS:
        count, members = partial(of_kind, host, Numbers.count, kind), partial(of_kind, host, Numbers.members, kind)
        gauge("kafkalite_groups", "Groups that are coordinated here.", count, kind=kind)
        gauge("kafkalite_group_members", "Members of these groups.", members, kind=kind)
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


def of_kind(host: CoordinatorHost, read: Callable[[Numbers, str], int], kind: str) -> int:
    """A total of one kind of group, now."""
    return read(host.group_coordinator.numbers, kind)
