"""Imports the group coordinator for the first FindCoordinator, in steps between which the loop serves clients.

Imported at once by the first request of a group, its 78 modules occupied the loop for 50 ms of CPU time, with bytecode
that is compiled already. Imported by every start they would take 5 MB of memory in brokers without groups.
"""

from collections.abc import Generator
from importlib import import_module

__all__ = ["import_group_coordinator"]


def import_group_coordinator() -> Generator[None, None, None]:
    """Import what `Broker.group_coordinator` needs, in steps of at most about 5 ms: for `Slicer.run`."""
    import_module("kafkalite.state.group_records")
    yield
    import_module("kafkalite.protocol.stored.group_records")
    yield
    import_module("kafkalite.coordinators.runtime")
    yield
    import_module("kafkalite.state.offsets")
    yield
    import_module("kafkalite.state.classic_groups")
    yield
    import_module("kafkalite.state.consumer_membership")
    yield
    import_module("kafkalite.state.consumer_groups")
    yield
    import_module("kafkalite.state.registered_groups")
    yield
    import_module("kafkalite.coordinators.group_coordinator")
