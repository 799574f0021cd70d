"""The eligible replicas of a partition (KIP-966): those outside the ISR that have every acknowledged record.

1. A member that leaves an ISR which falls below the minimum of in-sync replicas, or is below it, stays eligible. The
   leader commits nothing while there are eligible replicas, whatever minimum it knows: so all members of the ISR and
   all eligible replicas have every committed record, until the ISR has the minimum again and there are none any more.
2. The controller may know an older minimum than the leader. If it is higher, replicas stay eligible for longer, and
   appends wait. If it is lower, no replica is eligible. In both cases eligible replicas have every committed record.
3. A replica whose broker has lost what was not flushed is not eligible, nor is one in a failed log directory while
   another replica leads: it may begin empty then.

Deviation: in Apache Kafka 4 the ISR may be empty, and eligible replicas lead as soon as no member is alive. Here the
last members stay in the ISR, and eligible replicas lead only where these have started after a power failure: a member
that returns has also what was acknowledged with acks=1.
Source: PartitionChangeBuilder.java (maybePopulateTargetElr) of Apache Kafka 4.
"""

from collections.abc import Collection

from kafkalite.state.controller.values import LeaderAndIsr, Replicas


def eligible_replicas(state: LeaderAndIsr, isr: Replicas, minimum: int, lost: Collection[int] = ()) -> Replicas:
    """The eligible replicas after a change of the ISR.

    Arguments:
        state: the state before it.
        isr: the next ISR.
        minimum: of in-sync replicas, at most the number of replicas.
        lost: replicas that may lack acknowledged records.
    """
    if len(isr) >= minimum:
        return ()
    return tuple([each for each in (*state.isr, *state.eligible) if each not in isr and each not in lost])
