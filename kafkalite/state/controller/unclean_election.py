"""Elects replicas as leaders that are not in sync: when that is asked, whether it is allowed, and what is elected.

1. Without an in-sync or eligible replica that is online, a partition is stuck: only an unclean election can give it a
   leader. The config of its topic is read then, and again after each change of configs.
2. Where the topic allows it (`unclean.leader.election.enable`), the controller elects by itself; where it does not, a
   client may request it (ElectLeaders).
3. Records that were acknowledged may be lost: so the elected replica recovers (`unclean_state`).

The events (`partitions/events`), actions and requests of partitions call this: it imports none of them.
Source: PartitionStateMachine.scala (collectUncleanLeaderElectionState), KafkaController.scala
(processTopicUncleanLeaderElectionEnable, processReplicaLeaderElection) of Kafka 3.9.
"""

from collections.abc import Sequence

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import TopicConfigsRead
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partitions.eligible_replicas import eligible_replicas
from kafkalite.state.controller.partitions.leader_elections import state_in_next_epoch
from kafkalite.state.controller.states import PartitionState
from kafkalite.state.controller.values import NO_LEADER, LeaderAndIsr


def ask_for_unclean_election(context: ControllerContext, partition: Partition) -> None:
    """Read whether the topic allows an unclean election, if only that can elect a leader."""
    state = partition.current
    if state is not None and state.leader == NO_LEADER and context.candidates(partition):
        context.stuck[partition] = None
        context.work.configs_to_read[partition.key.topic] = None
    elif partition in context.stuck:
        del context.stuck[partition]


def ask_again(context: ControllerContext, topic: str | None) -> None:
    """Read again whether topics with stuck partitions allow unclean elections.

    Arguments:
        context: of the controller.
        topic: the name of the topic whose config has changed; None = all may have.
    """
    for partition in context.stuck:
        if topic in (None, partition.key.topic):
            context.work.configs_to_read[partition.key.topic] = None


def allowed_elections(context: ControllerContext, event: TopicConfigsRead) -> list[Partition]:
    """The stuck partitions that a read config allows to elect a leader out of sync."""
    topic = context.topics.get(event.topic)
    if topic is None or not event.unclean_elections:
        return []
    # Those of the topic, not all that are stuck: each of 10,000 topics may be read after the death of a broker.
    return [one for one in topic.partitions.values() if one in context.stuck and one.state is PartitionState.OFFLINE]


def elect_unclean(context: ControllerContext, partition: Partition, done: int) -> int | LeaderAndIsr:
    """The state with a leader that need not be in sync, or an error code.

    Arguments:
        context: of the controller.
        partition: with a known state and no write in flight.
        done: the error code if the partition has a leader that is online.
    """
    assert partition.current is not None
    if context.leader_online(partition):
        return done
    minimum = context.minimum(partition)
    chosen = unclean_state(partition.current, context.candidates(partition), context.settings.epoch, minimum)
    return KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if chosen is None else chosen


def unclean_state(
    state: LeaderAndIsr, candidates: Sequence[int], controller_epoch: int, minimum: int = 1
) -> LeaderAndIsr | None:
    """The state in which a replica leads that is not in sync: it is the ISR alone, and recovers (KIP-704).

    An eligible replica is elected before others. Nothing is lost with it, so it needs no recovery, and the members of
    the ISR of before are eligible.

    Arguments:
        state: the current state.
        candidates: the replicas that are online, the first one leads. Without one the result is None.
        controller_epoch: of the term.
        minimum: of in-sync replicas.
    """
    for leader in candidates:
        if leader in state.eligible:
            eligible = eligible_replicas(state, (leader,), minimum)
            return state_in_next_epoch(
                state, leader, (leader,), controller_epoch, eligible, recovering=state.recovering
            )
    if not candidates:
        return None
    leader = candidates[0]
    return state_in_next_epoch(state, leader, (leader,), controller_epoch, (), recovering=True)
