"""Everything that coordinates groups on a broker, made in one go, and told in one place what changes around it.

The broker makes it when `__consumer_offsets` is there, or when the first client asks for a group: these rooms are a
sixth of what a start imports.
"""

from functools import partial
from typing import Protocol

from kafkalite.cluster.internal import OFFSETS
from kafkalite.coordinators.group_settings import GroupHost, machine
from kafkalite.coordinators.groups import Groups
from kafkalite.coordinators.patterns import PatternHost, Patterns
from kafkalite.coordinators.runtime import Host, Runtime
from kafkalite.coordinators.stored import GroupCodec
from kafkalite.coordinators.upkeep import Upkeep

__all__ = ["CoordinatorHost", "GroupCoordinator"]


class CoordinatorHost(Host, PatternHost, GroupHost, Protocol):
    """The broker around."""


class GroupCoordinator:
    """The groups of a broker; loading begins at once, in the background.

    Attributes:
        groups: what requests ask.
    """

    def __init__(self, host: CoordinatorHost) -> None:
        self._runtime = Runtime(host, OFFSETS, partial(machine, host), GroupCodec())
        self._runtime.ask = Patterns(host, self._runtime).ask
        self._upkeep = Upkeep(self._runtime, host.clock, host.config)
        self.groups = Groups(self._runtime)
        self._runtime.follow()
        self._upkeep.start()

    def topic_changed(self, name: str) -> None:
        """A topic is new or has grown."""
        self._runtime.follow()
        self._upkeep.topic_changed(name)

    def topic_gone(self, name: str) -> None:
        """A topic was deleted."""
        self._upkeep.topic_gone(name)

    def close(self) -> None:
        """Take no request any more; whoever waits hears NOT_COORDINATOR."""
        self._upkeep.close()
        self._runtime.close()
