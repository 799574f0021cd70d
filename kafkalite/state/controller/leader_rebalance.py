"""Elects the preferred replicas of brokers out of balance: KafkaController.checkAndTriggerAutoLeaderRebalance of 3.9.

A broker is in balance while at most `leader.imbalance.per.broker.percentage` of the partitions whose preferred replica
it has are led by others. Only preferred replicas that are in sync are elected: a check that elects none writes nothing.
`preferred_election` says which replicas can lead.
"""

from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partitions.events import elect_each
from kafkalite.state.controller.preferred_election import can_lead_preferred
from kafkalite.state.controller.states import PartitionState, TopicState
from kafkalite.state.controller.steps import Steps

REBALANCE = "rebalance"  # first part of the name of the timer
FIRST_MS = 5_000  # as in Kafka: after the start of a controller, brokers still join


def start_rebalances(context: ControllerContext) -> None:
    """Check the balance from now on, if it is configured."""
    if context.settings.rebalance_ms is not None:
        context.set_timer((REBALANCE, None), FIRST_MS)


def rebalance_leaders(context: ControllerContext, argument: object) -> Steps:
    """Elect the preferred replicas of the brokers that are out of balance."""
    assert context.settings.rebalance_ms is not None
    context.set_timer((REBALANCE, None), context.settings.rebalance_ms)
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[Partition]] = {}
    for topic in context.topics.values():
        for partition in topic.partitions.values() if topic.state is TopicState.ACTIVE else ():
            broker, state = partition.replicas[0], partition.current
            preferred[broker] = preferred.get(broker, 0) + 1
            if state is not None and state.leader != broker:
                elsewhere.setdefault(broker, []).append(partition)
            yield
    for broker, partitions in elsewhere.items():
        if len(partitions) / preferred[broker] > context.settings.imbalance_max:
            movable = [one for one in partitions if _can_move(context, one)]
            if movable:
                context.log("info", f"broker {broker}: an election of {len(movable)} preferred replicas begins")
            yield from elect_each(context, movable, unclean=False)


def _can_move(context: ControllerContext, partition: Partition) -> bool:
    return partition.state is PartitionState.ONLINE and can_lead_preferred(context, partition)
