"""The elections of a leader and of the ISR of a partition: Election.scala and PartitionStateMachine.scala of Kafka 3.9.

`online` are the assigned replicas whose broker is alive and whose log directory works, in the order of the assignment.
Each election raises the leader epoch. Where the ISR has lost records, eligible replicas become the ISR
(`eligible_replicas`). Only an unclean election, which a topic config or a request must allow (`unclean_election`),
elects another replica: records that were acknowledged may be lost. Elections of the preferred replica are in
`preferred_election`.
"""

from collections.abc import Collection, Sequence

from kafkalite.state.controller.partitions.eligible_replicas import eligible_replicas
from kafkalite.state.controller.values import FIRST_LEADER_EPOCH, NO_LEADER, LeaderAndIsr, Replicas


def first_state(online: Replicas, controller_epoch: int) -> LeaderAndIsr | None:
    """The state of a new partition: the first replica that is online leads, all that are online are in sync.

    Returns None if no replica is online.
    """
    return LeaderAndIsr(online[0], FIRST_LEADER_EPOCH, online, controller_epoch) if online else None


def next_state(
    state: LeaderAndIsr,
    online: Replicas,
    controller_epoch: int,
    *,
    restarted: Collection[int] = (),
    leaving: Collection[int] = (),
    lossy: Collection[int] = (),
    failed: Collection[int] = (),
    minimum: int = 1,
) -> LeaderAndIsr | None:
    """The state that follows from the replicas that are online.

    A replica that has restarted since the state was written may have lost the end of its log. As in
    KafkaController.processBrokerChange it has failed, and then started: another in-sync replica leads, and it leaves
    the ISR. If all in-sync replicas have restarted, one of them leads in a new leader epoch and is the ISR alone.

    A replica whose broker shuts down leads only while no other in-sync replica can, and then the ISR keeps those that
    shut down with it, so that a whole cluster that stops at once keeps its ISRs.

    Arguments:
        state: the current state.
        online: see above.
        controller_epoch: for the new state.
        restarted: the brokers that have registered again since the state was written.
        leaving: the brokers that shut down (ControlledShutdownPartitionLeaderElectionStrategy).
        lossy: those of `restarted` that have lost what was not flushed: they leave the ISR also if the other members
            are not alive (not in Kafka), and are not eligible any more.
        failed: replicas in failed log directories, of brokers that are alive.
        minimum: of in-sync replicas.

    Returns None if the current state remains. Without an in-sync replica that is online there is no leader, and the ISR
    is kept: its members may be elected when they return.
    """
    kept = _kept_members(state, lossy)
    sound = [replica for replica in online if replica in kept]
    unbroken = [replica for replica in sound if replica not in restarted]
    leader, members = _first_leader(
        state,
        [replica for replica in unbroken if replica not in leaving],
        unbroken if state.leader in unbroken else [],
    )
    if leader == NO_LEADER:
        leader, _ = _first_leader(state, [replica for replica in sound if replica not in leaving])
        members = [leader]
    isr = kept if leader == NO_LEADER else tuple(member for member in kept if member in members)
    eligible = eligible_replicas(state, isr, minimum, lossy if leader == NO_LEADER else {*lossy, *failed})
    if (leader, isr, eligible) == (state.leader, state.isr, state.eligible) and leader not in restarted:
        return None
    return state_in_next_epoch(state, leader, isr, controller_epoch, eligible, recovering=state.recovering)


def _kept_members(state: LeaderAndIsr, lossy: Collection[int]) -> Replicas:
    """The members of the ISR that have every acknowledged record; without any the eligible replicas.

    If no replica is left, the ISR remains: its members have the most records. Members in failed log directories remain,
    too: the directories may be repaired.
    """
    kept = tuple([member for member in state.isr if member not in lossy])
    return kept or tuple([each for each in state.eligible if each not in lossy]) or state.isr


def state_in_next_epoch(
    state: LeaderAndIsr, leader: int, isr: Replicas, controller_epoch: int, eligible: Replicas, *, recovering: bool
) -> LeaderAndIsr:
    """The state of the next leader epoch; the registrations are added when it is written.

    Arguments:
        state: the current state.
        leader, isr, eligible: of the new state.
        controller_epoch: for the new state.
        recovering: whether the leader of the new state was elected from outside the ISR and has not recovered yet.
    """
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, controller_epoch, recovering, eligible=eligible)


def _first_leader(state: LeaderAndIsr, *groups: Sequence[int]) -> tuple[int, Sequence[int]]:
    """The leader of the first group that has a replica, with the group: the current one, else the first replica."""
    for group in groups:
        if group:
            return state.leader if state.leader in group else group[0], group
    return NO_LEADER, ()
