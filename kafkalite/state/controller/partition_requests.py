"""Requests to change the states of partitions, which wait while the state of a partition is written or read.

A request has one answer, once every partition of it has its outcome. A partition is evaluated again after the write of
its own change: so a request that was repeated after a lost response, or whose write had no response, finds its change.
"""

from typing import NamedTuple, TypeAlias

from kafkalite.state.controller.effects import Completion, Effect
from kafkalite.state.controller.events import RequestedIsr
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.values import PartitionOutcome, Token


class Election(NamedTuple):
    """Elect the preferred replica, or one that is not in sync if there is no other."""

    unclean: bool


class Departure(NamedTuple):
    """A broker shuts down: it has left the partition as far as it can."""

    broker_id: int


Ask: TypeAlias = RequestedIsr | Election | Departure


class PartitionBatch:
    """The partitions of one request.

    Arguments:
        token: of the event; None = the controller itself requests it, and needs no answer.
        sender: broker id of the sender; -1 = no broker has sent it.
        count: number of partitions.

    Attributes:
        missing: number of partitions without an outcome.
    """

    __slots__ = ("missing", "outcomes", "sender", "token")

    def __init__(self, token: Token, sender: int, count: int) -> None:
        self.token = token
        self.sender = sender
        self.outcomes: list[PartitionOutcome | None] = [None] * count
        self.missing = count


class PartitionRequest:
    """A request to change the state of one partition.

    Arguments:
        batch: that it belongs to.
        at: its index there.
        ask: what is requested.

    Attributes:
        written: whether a state was chosen for it.
    """

    __slots__ = ("ask", "at", "batch", "written")

    def __init__(self, batch: PartitionBatch, at: int, ask: Ask) -> None:
        self.batch = batch
        self.at = at
        self.ask = ask
        self.written = False


class PartitionRequests:
    """The requests that wait.

    Arguments:
        effects: the list that every event fills; it stays the same object.
    """

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._open: dict[PartitionBatch, None] = {}
        self._waiting: dict[Partition, list[PartitionRequest]] = {}

    def open(self, token: Token, sender: int, count: int) -> PartitionBatch:
        """Begin a request; `token`, `sender` and `count` are those of `PartitionBatch`.

        Without partitions it is complete at once.
        """
        batch = PartitionBatch(token, sender, count)
        self._open[batch] = None
        self._end(batch)
        return batch

    def wait(self, partition: Partition, request: PartitionRequest) -> None:
        """Add a request of a partition."""
        self._waiting.setdefault(partition, []).append(request)

    def waits(self, partition: Partition) -> bool:
        """Whether a request of this partition waits."""
        return partition in self._waiting

    def of(self, partition: Partition) -> tuple[PartitionRequest, ...]:
        """The requests of a partition."""
        return tuple(self._waiting.get(partition, ()))

    def answer(self, partition: Partition, request: PartitionRequest, error: int) -> None:
        """End a request of a partition with an error code, 0 = its state is as requested."""
        left = [each for each in self._waiting[partition] if each is not request]
        if left:
            self._waiting[partition] = left
        else:
            del self._waiting[partition]
        outcome = PartitionOutcome(partition.key, error, partition.current, partition.version)
        self.complete(request.batch, request.at, outcome)

    def complete(self, batch: PartitionBatch, at: int, outcome: PartitionOutcome) -> None:
        """Keep the `outcome` of the partition `at` its position in `batch`, and end the request with the last one."""
        batch.outcomes[at] = outcome
        batch.missing -= 1
        self._end(batch)

    def fail_all(self, error: int) -> None:
        """Complete all requests with an error."""
        self._effects += [Completion(batch.token, error) for batch in self._open if batch.token is not None]
        self._open.clear()
        self._waiting.clear()

    def _end(self, batch: PartitionBatch) -> None:
        if batch.missing == 0:
            del self._open[batch]
            if batch.token is not None:
                outcomes = tuple(outcome for outcome in batch.outcomes if outcome is not None)
                self._effects.append(Completion(batch.token, 0, outcomes))
