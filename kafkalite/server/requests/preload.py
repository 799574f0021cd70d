"""Imports the coordinators of groups and transactions, and the handlers that members and producers need, for the first
FindCoordinator of each type, in steps between which the loop serves clients.

Imported at once by the first request of a group, its 78 modules occupied the loop for 50 ms of CPU time, with bytecode
that is compiled already. Imported by every start they would take 5 MB of memory in brokers without groups.
"""

import sys
from collections.abc import Generator
from importlib import import_module

MEMBER_HANDLERS = ("consumer_group_heartbeat", "join_group", "sync_group", "offset_fetch", "offset_commit", "heartbeat")
"""The handlers of the requests that members send first; each takes 1 to 3 ms to import."""


def import_group_coordinator() -> Generator[None, None, None]:
    """Import what `RunningBroker.group_coordinator` and the first requests of a member need.

    For `Slicer.run`, in steps of at most about 5 ms.
    """
    import_module("kafkalite.state.groups.records")
    yield
    import_module("kafkalite.protocol.stored.group_records")
    yield
    import_module("kafkalite.coordinators.runtime.runtime")
    yield
    import_module("kafkalite.state.groups.offsets.manager")
    yield
    import_module("kafkalite.state.groups.classic.groups")
    yield
    import_module("kafkalite.state.groups.consumer.membership")
    yield
    import_module("kafkalite.state.groups.consumer.groups")
    yield
    import_module("kafkalite.state.groups.registered.groups")
    yield
    import_module("kafkalite.coordinators.group.serde")
    yield
    import_module("kafkalite.coordinators.group.coordinator")
    for handler in MEMBER_HANDLERS:
        yield
        import_module(f"kafkalite.server.handlers.{handler}")


TRANSACTION_COORDINATOR = "kafkalite.coordinators.transaction.coordinator"
PRODUCER_HANDLERS = ("init_producer_id", "add_partitions_to_txn", "end_txn")
"""The handlers of the requests that transactional producers send first."""


def has_transaction_coordinator() -> bool:
    """Whether the transaction coordinator is imported."""
    return TRANSACTION_COORDINATOR in sys.modules


def import_transaction_coordinator() -> Generator[None, None, None]:
    """Import what `RunningBroker.transactions` and the first requests of a transactional producer need.

    For `Slicer.run`, after `import_group_coordinator`, as all handlers of FindCoordinator.
    """
    import_module("kafkalite.state.transactions.machine")
    yield
    import_module("kafkalite.coordinators.transaction.serde")
    yield
    import_module("kafkalite.coordinators.transaction.marker_sender")
    yield
    import_module(TRANSACTION_COORDINATOR)
    for handler in PRODUCER_HANDLERS:
        yield
        import_module(f"kafkalite.server.handlers.{handler}")
