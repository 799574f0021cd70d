"""One command on one transactional id, and the row of the table that decides it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.model import TopicPartition
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.transactions.metadata import NONE, TransactionMetadata
from kafkalite.state.transactions.states import EpochRelation, TransactionEvent, TransactionVersion


@dataclass(slots=True)
class TransactionStep:
    """A validated command.

    Arguments:
        metadata: the state before it.
        token: the pending response; None for timers and markers.
        epoch: of the request, -1 = not given.
        new_producer_id: allocated for this step, -1 = none yet.
        needs_producer_id: an action sets it, without other effects, if it needs a new id.
    """

    event: TransactionEvent
    metadata: TransactionMetadata
    relation: EpochRelation
    version: TransactionVersion
    now: Now
    token: Token = None
    epoch: int = NONE
    timeout_ms: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    new_producer_id: int = NONE
    needs_producer_id: bool = False
    effects: Effects = field(default_factory=Effects)


class TransactionRow(NamedTuple):
    """What happens: an error code, or an action.

    Arguments:
        source: the method of TransactionCoordinator.scala, the KIP or issue of Kafka, or "deviation: ...".
    """

    error: int
    action: Callable[[TransactionStep], None] | None
    source: str
