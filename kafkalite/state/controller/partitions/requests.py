"""Decides requests to change the state of a partition: KafkaController.processAlterPartition of Kafka 3.9.

A request is evaluated while the partition has a known state and no write in flight. The current state has precedence: a
request that waits during an election is decided by the elected state.
"""

from collections.abc import Callable
from typing import Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import RequestedIsr
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partition_requests import Ask, Departure, Election, PartitionRequest
from kafkalite.state.controller.partitions.eligible_replicas import eligible_replicas
from kafkalite.state.controller.preferred_election import elect_preferred
from kafkalite.state.controller.states import PartitionEvent
from kafkalite.state.controller.unclean_election import elect_unclean
from kafkalite.state.controller.values import LeaderAndIsr

ANY_EPOCH = -1  # of a member in AlterPartition: it is not checked (KIP-903)


def evaluate_requests(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Choose the state that the first valid request leads to; the others wait for the write. Answer invalid ones."""
    for request in context.requests.of(partition):
        decided = DECISIONS[type(request.ask)](context, partition, request)
        if isinstance(decided, LeaderAndIsr):
            request.written = True
            partition.wanted = decided
            return PartitionEvent.STATE_CHOSEN
        context.requests.answer(partition, request, decided)
    return None


def refuse_requests(context: ControllerContext, partition: Partition) -> None:
    """The partition has no state that could be changed, or does not exist any more."""
    for request in context.requests.of(partition):
        context.requests.answer(partition, request, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def change_isr(context: ControllerContext, partition: Partition, request: PartitionRequest) -> int | LeaderAndIsr:
    """The state with the requested ISR, or an error code; 0 = the ISR is as requested.

    After INVALID_UPDATE_VERSION the leader waits for the state, which a tool may have written: it is sent.

    Arguments:
        context: of the controller.
        partition: with a known state and no write in flight.
        request: of its leader.
    """
    change, current = request.ask, partition.current
    assert isinstance(change, RequestedIsr) and current is not None
    members = tuple(broker for broker, _ in change.isr)
    if change.leader_epoch != current.leader_epoch:
        return KafkaErrorCode.FENCED_LEADER_EPOCH
    if (sorted(members), change.recovering) == (sorted(current.isr), current.recovering):
        return KafkaErrorCode.NONE
    if change.partition_epoch != partition.version:
        context.announce_to(request.batch.sender, partition)
        return KafkaErrorCode.INVALID_UPDATE_VERSION
    if not _is_valid(partition, current, request.batch.sender, members, recovering=change.recovering):
        return KafkaErrorCode.INVALID_REQUEST
    if not all(_is_eligible(context, partition, *member) for member in change.isr):
        return KafkaErrorCode.INELIGIBLE_REPLICA
    eligible = eligible_replicas(current, members, context.minimum(partition))
    return LeaderAndIsr(
        current.leader, current.leader_epoch, members, context.settings.epoch, change.recovering, eligible=eligible
    )


def _is_valid(
    partition: Partition, current: LeaderAndIsr, sender: int, members: tuple[int, ...], *, recovering: bool
) -> bool:
    """Whether the ISR is one of assigned replicas, each once, with the leader, which has sent it."""
    if sender != current.leader or sender not in members or len(set(members)) < len(members):
        return False
    if not set(members) <= set(partition.replicas):
        return False
    return not recovering or (current.recovering and len(members) == 1)


def _is_eligible(context: ControllerContext, partition: Partition, broker_id: int, broker_epoch: int) -> bool:
    """Whether a member is alive in the registration that the leader knows (KIP-841, KIP-903); a replica whose broker
    shuts down does not join.
    """
    broker = context.brokers.get(broker_id)
    if broker is None or broker_epoch not in (ANY_EPOCH, broker.epoch) or broker_id in partition.offline:
        return False
    return broker_id not in context.leaving or (partition.current is not None and broker_id in partition.current.isr)


def elect_leader(context: ControllerContext, partition: Partition, request: PartitionRequest) -> int | LeaderAndIsr:
    """The state with the elected leader, or an error code: KafkaController.processReplicaLeaderElection.

    Arguments: as of `change_isr`.
    """
    assert isinstance(request.ask, Election)
    done = KafkaErrorCode.NONE if request.written else KafkaErrorCode.ELECTION_NOT_NEEDED
    elect = elect_unclean if request.ask.unclean else elect_preferred
    return elect(context, partition, done)


def leave(context: ControllerContext, partition: Partition, request: PartitionRequest) -> int:
    """The elections before this have moved what can move: a follower stops; the outcome says whether it leads.

    Arguments: as of `change_isr`.
    """
    assert isinstance(request.ask, Departure)
    context.stop_follower(request.ask.broker_id, partition)
    return KafkaErrorCode.NONE


DECISIONS: dict[type[Ask], Callable[[ControllerContext, Partition, Any], int | LeaderAndIsr]] = {
    RequestedIsr: change_isr,
    Election: elect_leader,
    Departure: leave,
}
