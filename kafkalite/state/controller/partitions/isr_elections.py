"""Chooses the leader and the ISR of a partition: Election.scala and PartitionStateMachine.scala of Kafka 3.9.

`online` are the assigned replicas whose broker is alive and whose log directory works, in the order of the assignment.
Each election raises the leader epoch.
There is no unclean election: with one replica, the ISR always is that replica.
"""

from collections.abc import Collection, Sequence

from kafkalite.state.controller.values import FIRST_LEADER_EPOCH, NO_LEADER, LeaderAndIsr, Replicas


def first_state(online: Replicas, controller_epoch: int) -> LeaderAndIsr | None:
    """The state of a new partition: the first replica that is online leads, all that are online are in sync.

    Returns None if no replica is online.
    """
    return LeaderAndIsr(online[0], FIRST_LEADER_EPOCH, online, controller_epoch) if online else None


def next_state(
    state: LeaderAndIsr, online: Replicas, controller_epoch: int, *, restarted: Collection[int] = ()
) -> LeaderAndIsr | None:
    """The state that follows from the replicas that are online.

    A replica that has restarted since the state was written may have lost the end of its log. As in
    KafkaController.processBrokerChange it has failed, and then started: another in-sync replica leads, and it leaves
    the ISR. If all in-sync replicas have restarted, one of them leads in a new leader epoch and is the ISR alone.

    Arguments:
        state: the current state.
        online: see above.
        controller_epoch: for the new state.
        restarted: the brokers that have registered again since the state was written.

    Returns None if the current state remains. Without an in-sync replica that is online there is no leader, and the ISR
    is kept: its members may be elected when they return.
    """
    running = [replica for replica in online if replica not in restarted]
    leader = _leader(state, running)
    isr = tuple(replica for replica in state.isr if replica in running)
    if leader == NO_LEADER and (leader := _leader(state, online)) != NO_LEADER:
        isr = (leader,)
    isr = isr or state.isr
    if leader == state.leader and isr == state.isr and leader not in restarted:
        return None
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, controller_epoch, state.recovering)


def _leader(state: LeaderAndIsr, candidates: Sequence[int]) -> int:
    """The leader if it is a candidate, else the first in-sync one (offlinePartitionLeaderElection), or none."""
    if state.leader in candidates:
        return state.leader
    return next((replica for replica in candidates if replica in state.isr), NO_LEADER)
