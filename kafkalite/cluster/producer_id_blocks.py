"""Allocates blocks of producer ids in `/latest_producer_id_block`, and raises that node above the ids in logs.

1. Each change is a compare-and-set: no two brokers get the same block (ZkProducerIdManager of Apache Kafka 3.9).
2. The node is behind the logs after an older tree or journal was restored, or when logs of another cluster were
   adopted. A producer with an id that a log has from an earlier producer would lose records: the broker takes its first
   batch for a repetition of the earlier one's, and acknowledges it without an append. So the node is raised before the
   first id is assigned.
3. A raise skips `RAISED_BY` further ids. The logs of other brokers, and of log directories that are offline, may have
   higher ids than those that are known here.
4. Ids from `IDS_MAX` on are ignored: a client has invented them. They would use up all ids.
"""

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.callbacks import fail_on_exception
from kafkalite.clock import Outcome, Then
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import BadVersionError
from kafkalite.coordination.tree import Set

BLOCK = 1000  # ProducerIdsBlock.java
RAISED_BY = 1_000_000_000
IDS_MAX = 2**62
NO_ID = -1

ThenBlock = Callable[[range | None], None]


class RaisedIds(NamedTuple):
    """A raise of the node.

    Attributes:
        assigned: the last id that was assigned before, by the node; -1 for none.
        found: the largest id in logs.
        last: the last id that is not assigned any more.
    """

    assigned: int
    found: int
    last: int


def take_block(
    session: Coordination, broker_id: int, then: ThenBlock, report: Callable[[znodes.ZnodeError], object]
) -> None:
    """Allocate the next block of producer ids.

    Arguments:
        session: with the coordination service.
        broker_id: of this broker, for the node.
        then: receives the ids of the block, or None after a failure.
        report: called before with the error of an invalid node.
    """

    def read(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(None)
            return
        try:
            first = last_assigned(outcome.value[0]) + 1
        except znodes.ZnodeError as error:
            report(error)
            then(None)
            return
        block = range(first, first + BLOCK)

        def written(outcome: Outcome) -> None:
            if isinstance(outcome.error, BadVersionError):  # another broker has changed the node
                take_block(session, broker_id, then, report)
            else:
                then(block if outcome.error is None else None)

        node = encode_block(broker_id, block.start, block.stop - 1)
        session.set(znodes.PRODUCER_ID_BLOCK, node, written, outcome.value[1].version)

    session.get(znodes.PRODUCER_ID_BLOCK, fail_on_exception(read, lambda: then(None)))


def raise_above(session: Coordination, broker_id: int, found: int, then: Then, *, force: bool = False) -> None:
    """Let the next block begin above the largest producer id in logs.

    Arguments:
        session: with the coordination service.
        broker_id: of this broker, for the node.
        found: the largest id in logs, -1 for none.
        then: called with the outcome: `RaisedIds`, or None if the node was not behind. The error may be ZnodeError.
        force: raise the node in any case, because the tree is known to be older than the logs.
    """

    def read(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
            return
        try:
            raised = raised_ids(outcome.value[0], found, force=force)
        except znodes.ZnodeError as error:
            then(Outcome(error=error))
            return
        if raised is None:
            then(Outcome())
            return

        def written(outcome: Outcome) -> None:
            if isinstance(outcome.error, BadVersionError):
                raise_above(session, broker_id, found, then, force=force)
            else:
                then(Outcome(raised) if outcome.error is None else outcome)

        operation = raise_operation(broker_id, raised, outcome.value[1].version)
        session.set(operation.path, operation.data, written, operation.version)

    session.get(znodes.PRODUCER_ID_BLOCK, read)


def raised_ids(data: bytes, found: int, *, force: bool) -> RaisedIds | None:
    """Return how the node is raised, None if it is not. Raises ZnodeError.

    Arguments:
        data: the content of the node.
        found: the largest producer id in the logs, -1 = none.
        force: whether it is raised in any case.
    """
    assigned = last_assigned(data)
    found = found if found < IDS_MAX else NO_ID
    if found <= assigned and not force:
        return None
    return RaisedIds(assigned, found, max(found, assigned) + RAISED_BY)


def raise_operation(broker_id: int, raised: RaisedIds, version: int) -> Set:
    """The change of the node with this `version` to the `raised` ids, by `broker_id`."""
    return Set(znodes.PRODUCER_ID_BLOCK, encode_block(broker_id, raised.assigned + 1, raised.last), version)


def last_assigned(data: bytes) -> int:
    """The last assigned id, -1 for none. Raises ZnodeError."""
    block = znodes.decode_producer_ids(data)
    return NO_ID if block is None else block.last


def encode_block(broker_id: int, first: int, last: int) -> bytes:
    """The content of the node: `broker_id` has the ids from `first` to `last`."""
    return znodes.encode_producer_ids(znodes.ProducerIdBlock(broker_id, first, last))
