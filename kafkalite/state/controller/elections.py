"""Chooses the leader and the ISR of a partition: Election.scala and PartitionStateMachine.scala of Kafka 3.9.

`online` are the assigned replicas whose broker is alive and whose log directory works, in the order of the assignment.
There is no unclean election: with one replica, the ISR always is that replica.
"""

from kafkalite.state.controller.values import FIRST_LEADER_EPOCH, NO_LEADER, LeaderAndIsr, Replicas


def first_state(online: Replicas, controller_epoch: int) -> LeaderAndIsr | None:
    """The state of a new partition: the first replica that is online leads, all that are online are in sync.

    Returns None if no replica is online.
    """
    return LeaderAndIsr(online[0], FIRST_LEADER_EPOCH, online, controller_epoch) if online else None


def next_state(
    state: LeaderAndIsr, online: Replicas, controller_epoch: int, *, restarted: bool = False
) -> LeaderAndIsr | None:
    """The state that follows from the replicas that are online.

    Arguments:
        state: the current state.
        online: see above.
        controller_epoch: for the new state.
        restarted: whether the broker of the leader has restarted: it leads again, in a new leader epoch.

    Returns None if the current state remains. Without an in-sync replica that is online there is no leader, and the ISR
    is kept: its members may be elected when they return.
    """
    leader = state.leader if state.leader in online else _elected(state.isr, online)
    isr = tuple(replica for replica in state.isr if replica in online) or state.isr
    if leader == state.leader and isr == state.isr and not (restarted and leader != NO_LEADER):
        return None
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, controller_epoch, state.recovering)


def _elected(isr: Replicas, online: Replicas) -> int:
    """The first replica of the assignment that is online and in sync, or none (offlinePartitionLeaderElection)."""
    return next((replica for replica in online if replica in isr), NO_LEADER)
