"""Controlled shutdown: a broker asks for its leaders to be moved before it stops; its followers stop.

The broker's side is `server/running/controlled_shutdown`.
From then on it is no candidate, until it registers again: `partitions/leader_elections` chooses leaders among the
others.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import ShutDownBroker
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partition_requests import Departure, PartitionRequest
from kafkalite.state.controller.partitions.requests import ANY_EPOCH
from kafkalite.state.controller.partitions.table import step
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.steps import Steps

UNCHANGEABLE = frozenset((PartitionState.DELETED, PartitionState.INVALID))


def shut_down_broker(context: ControllerContext, event: ShutDownBroker) -> Steps:
    """Move the leaders of a broker, and stop its followers: KafkaController.doControlledShutdown.

    A partition with one replica stays where it is.
    """
    broker = context.brokers.get(event.broker_id)
    if broker is None:
        context.complete(event.token, KafkaErrorCode.BROKER_NOT_AVAILABLE)
        return
    if event.broker_epoch not in (ANY_EPOCH, broker.epoch):
        context.complete(event.token, KafkaErrorCode.STALE_BROKER_EPOCH)
        return
    context.log("info", f"broker {event.broker_id} shuts down")
    context.leaving.add(event.broker_id)
    partitions = [one for one in context.hosted.get(event.broker_id, {}).values() if _may_move(one)]
    batch = context.requests.open(event.token, event.broker_id, len(partitions))
    for at, partition in enumerate(partitions):
        context.requests.wait(partition, PartitionRequest(batch, at, Departure(event.broker_id)))
        step(context, partition, PartitionEvent.REPLICAS_CHANGED)
        yield


def _may_move(partition: Partition) -> bool:
    """Whether a partition has a state and several replicas."""
    return len(partition.replicas) > 1 and partition.current is not None and partition.state not in UNCHANGEABLE
