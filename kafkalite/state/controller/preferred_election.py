"""Elects the preferred replica of a partition as its leader: whether it can lead, and the state that it leads in.

`leader_rebalance` elects the preferred replicas of brokers out of balance; `partitions/requests` answers clients that
request the election (ElectLeaders). Both call this, which imports none of them.

Source: KafkaController.scala (processReplicaLeaderElection), Election.scala (leaderForPreferredReplica) of Kafka 3.9.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partitions.leader_elections import state_in_next_epoch
from kafkalite.state.controller.values import LeaderAndIsr


def elect_preferred(context: ControllerContext, partition: Partition, done: int) -> int | LeaderAndIsr:
    """The state in which the preferred replica leads, or an error code.

    Arguments:
        context: of the controller.
        partition: with a known state and no write in flight.
        done: the error code if the preferred replica leads and is online.
    """
    preferred, state = partition.replicas[0], partition.current
    assert state is not None
    if state.leader == preferred and context.leader_online(partition):
        return done
    if not can_lead_preferred(context, partition):
        return KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return preferred_state(state, preferred, context.settings.epoch)


def can_lead_preferred(context: ControllerContext, partition: Partition) -> bool:
    """Whether the preferred replica could lead: it is online, in sync, and its broker does not shut down."""
    preferred, state = partition.replicas[0], partition.current
    return state is not None and preferred in state.isr and preferred in context.candidates(partition)


def preferred_state(state: LeaderAndIsr, preferred: int, controller_epoch: int) -> LeaderAndIsr:
    """The state after `state`, in the term `controller_epoch`, in which `preferred` leads: the first replica, which is
    online and in sync (KIP-183).
    """
    return state_in_next_epoch(
        state, preferred, state.isr, controller_epoch, state.eligible, recovering=state.recovering
    )
