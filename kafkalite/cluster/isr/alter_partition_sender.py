"""Requests ISR changes from the controller: AlterPartition (KIP-497), one request in flight per broker.

1. A partition has at most one change here. All that wait leave with the next request: at the end of the loop iteration
   in which they were submitted, or when the request in flight has ended.
2. A request without a response, or with an error of the request (NOT_CONTROLLER, STALE_BROKER_EPOCH, ...), is repeated
   after a pause that grows from 50 ms to 1 s, with the changes that wait by then. So is a change whose partition has an
   error that leaves its result open, or that the response does not name.
3. A change that waits for a newer state of the controller is requested again after a second: the controller may have
   none to send. It applies a change once, or not at all. Apache Kafka waits for ever.
4. What a result means for the partition is `IsrChanges`'s decision. The result of a change that was withdrawn is
   ignored there.
5. Versions 2 and 3 are sent: topic ids (KIP-841), and with v3 the broker epochs of the members (KIP-903).

Deviation: Kafka repeats a change with an unexpected error of its partition at once.
Source: AlterPartitionManager.scala of Apache Kafka 3.9.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Protocol

from kafkalite.backoff import exponential_pause
from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Clock, Timer
from kafkalite.errors import error_for
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.state.isr.partition_isr import CommittedIsr, IsrChange, Result

LOGGER = logging.getLogger("kafkalite.cluster")
RETRY_S, RETRY_MAX_S = 0.05, 1.0
STATE_WAIT_S = 1.0
REPORT_EACH = 60  # repeated requests in a row, about a minute
NAMED_MAX = 5  # partitions in a log line

TopicData = AlterPartitionRequest.TopicData
PartitionData = TopicData.PartitionData
BrokerState = PartitionData.BrokerState
PartitionResult = AlterPartitionResponse.TopicData.PartitionData


class ControllerCalls(Protocol):
    """Sends requests to the controller, which may be this broker."""

    def alter_partition(
        self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse | None], object]
    ) -> None:
        """Send a request; `then` is called once, never inside: with the response, or None without one."""


class IsrOwner(Protocol):
    """A partition that requests changes of its ISR.

    Attributes:
        topic, topic_id, index: of the partition.
    """

    topic: str
    topic_id: bytes
    index: int

    def apply_state(self, change: IsrChange, state: CommittedIsr) -> None:
        """Use the state in a response without an error."""

    def apply_error(self, change: IsrChange, error: int) -> Result:
        """Use an error of the partition; returns what follows from it."""


class AlterPartitionSender:
    """Sends the ISR changes that the partitions led by this broker request.

    Arguments:
        clock: of the broker.
        controller: where the requests go.
        broker_id: of this broker.
        broker_epoch: returns that of the present registration.
    """

    def __init__(
        self, clock: Clock, controller: ControllerCalls, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._controller = controller
        self._broker_id = broker_id
        self._waiting: dict[IsrOwner, IsrChange] = {}
        self._sent: dict[IsrOwner, IsrChange] | None = None  # in the request in flight
        self._later: dict[IsrOwner, IsrChange] = {}  # wait for a newer state
        self._failures = 0  # requests in a row of which something is repeated
        self._timer: Timer | None = None  # sends the changes that wait
        self._closed = False

    def __len__(self) -> int:
        """Number of changes that have no result."""
        return len(self._waiting) + len(self._later) + len(self._sent or ())

    def submit(self, owner: IsrOwner, change: IsrChange) -> None:
        """Request a change; it replaces one of this partition that waits.

        Arguments:
            owner: receives the result, later.
            change: the change.
        """
        self._later.pop(owner, None)
        self._waiting[owner] = change
        self._send_after(0)

    def withdraw(self, owner: IsrOwner) -> None:
        """Do not request the change of a partition, nor repeat it. One in flight may be applied."""
        self._waiting.pop(owner, None)
        self._later.pop(owner, None)
        if self._sent is not None:
            self._sent.pop(owner, None)

    def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        self._later.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _send_after(self, pause_s: float) -> None:
        if self._waiting and self._timer is None and self._sent is None and not self._closed:
            self._timer = self._clock.call_at(self._clock.monotonic() + pause_s, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._waiting:
            self._sent, self._waiting = self._waiting, {}
            request = alter_partition_request(self._broker_id, self._broker_epoch(), self._sent)
            try:
                self._controller.alter_partition(request, self._ended)
            except Exception:
                self._ended(None)
                raise

    def _ended(self, response: AlterPartitionResponse | None) -> None:
        """Use a response, and send the next request: at once, or after a pause if something is repeated."""
        sent, self._sent = self._sent or {}, None
        if self._closed:
            return
        if response is None or response.error_code:
            if sent and self._failures % REPORT_EACH == 0:
                LOGGER.warning("ISR changes of %d partitions are requested again: %s", len(sent), reason(response))
            self._waiting = {**sent, **self._waiting}
            self._go_on(repeats=bool(sent))
        else:
            results = {(topic_id, result.partition_index): result for topic_id, result in results_of(response)}
            repeated: dict[IsrOwner, IsrChange] = {}
            apply = partial(self._apply, results, repeated)
            report_states(sent, results)
            call_all(partial(call_each, apply, list(sent.items())), partial(self._repeat, repeated))

    def _apply(
        self,
        results: Mapping[tuple[bytes, int], PartitionResult],
        repeated: dict[IsrOwner, IsrChange],
        sent: tuple[IsrOwner, IsrChange],
    ) -> None:
        """Give a partition its result; it is added to `repeated` if the change is requested again."""
        owner, change = sent
        result = results.get((owner.topic_id, owner.index))
        if result is not None and not result.error_code:
            state = tuple(result.isr), result.leader_epoch, result.partition_epoch, tuple(result.eligible_replicas)
            owner.apply_state(change, CommittedIsr(*state))
        else:
            follows = Result.REPEATED if result is None else owner.apply_error(change, result.error_code)
            if follows is Result.REPEATED:
                repeated[owner] = change
            elif follows is Result.WAITING:
                self._later[owner] = change
                self._clock.call_at(self._clock.monotonic() + STATE_WAIT_S, self._submit_again, owner, change)

    def _submit_again(self, owner: IsrOwner, change: IsrChange) -> None:
        if self._later.get(owner) is change:
            self.submit(owner, change)

    def _repeat(self, repeated: dict[IsrOwner, IsrChange]) -> None:
        self._waiting = {**repeated, **self._waiting}
        self._go_on(repeats=bool(repeated))

    def _go_on(self, *, repeats: bool) -> None:
        self._failures = self._failures + 1 if repeats else 0
        self._send_after(exponential_pause(RETRY_S, self._failures, RETRY_MAX_S) if repeats else 0)


def alter_partition_request(
    broker_id: int, broker_epoch: int, changes: Mapping[IsrOwner, IsrChange]
) -> AlterPartitionRequest:
    """The request for changes, in the form of all versions from 2 on.

    Arguments:
        broker_id, broker_epoch: of the sender.
        changes: by their partitions.
    """
    topics: dict[bytes, TopicData] = {}
    for owner, change in changes.items():
        if owner.topic_id not in topics:
            topics[owner.topic_id] = TopicData(topic_name=owner.topic, topic_id=owner.topic_id, partitions=[])
        topics[owner.topic_id].partitions.append(
            PartitionData(
                partition_index=owner.index,
                leader_epoch=change.leader_epoch,
                new_isr=[member.broker_id for member in change.isr],
                new_isr_with_epochs=[
                    BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch) for member in change.isr
                ],
                partition_epoch=change.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def results_of(response: AlterPartitionResponse) -> Iterator[tuple[bytes, PartitionResult]]:
    """The results in a response, with their topic ids."""
    for topic in response.topics:
        for result in topic.partitions:
            yield topic.topic_id, result


def report_states(sent: Collection[IsrOwner], results: Mapping[tuple[bytes, int], PartitionResult]) -> None:
    """Write one log line about the partitions of a request that have another ISR."""
    states = [
        f"{owner.topic}-{owner.index} ({', '.join(map(str, result.isr))})"
        for owner in sent
        if (result := results.get((owner.topic_id, owner.index))) is not None and not result.error_code
    ]
    if states:
        more = f" and {len(states) - NAMED_MAX} more" if len(states) > NAMED_MAX else ""
        LOGGER.info("in-sync replicas have changed: %s%s", ", ".join(states[:NAMED_MAX]), more)


def reason(response: AlterPartitionResponse | None) -> str:
    """Why a request is repeated."""
    return "the controller did not respond" if response is None else str(error_for(response.error_code))
