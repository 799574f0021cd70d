"""Collects the status of a cluster: brokers, controller, coordination, partitions without a leader, invalid nodes.

The controller knows the invalid nodes of the tree, and every broker why no controller can be elected. All brokers are
asked, so it does not matter which one is given, or whether another controller is elected meanwhile.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Coordination, Resource, TopicDescription

from kafkalite.cli.acl.needed import with_user
from kafkalite.cli.cluster.invalid_tree_nodes import NodeStatus, node_statuses
from kafkalite.cli.cluster.replica_counts import ReplicaCounts, count_replicas, imbalances_of
from kafkalite.errors import AuthorizationError, KafkaError, with_right

TRANSACTION_VERSION = "transaction.version"
COORDINATION_KEYS = ("zookeeper.connect", "kafkalite.coordination.directory")


class BrokerStatus(NamedTuple):
    """A live broker.

    Attributes:
        broker, host, port, rack: its address as other brokers know it.
        controller: whether it is the controller.
        answers: whether it has answered in time.
        denied: whether it does not show its state, as the client has no right to see it.
        coordination: its ZooKeeper or coordination directory, None = it has none, or does not answer.
        outage_s: how long that has been out of reach, in seconds; None = it is connected.
        imbalance: share of the partitions whose first replica it has that others lead, in percent.
        replica_lag: the largest number of records that one of its replicas is behind the leader; None = unknown.
        pending_isr_changes: changes of in-sync replicas that it has requested, without a result; None = unknown.
    """

    broker: int
    host: str
    port: int
    rack: str | None
    controller: bool
    answers: bool
    denied: bool
    coordination: str | None
    outage_s: float | None
    imbalance: int
    replica_lag: int | None
    pending_isr_changes: int | None


class PartitionStatus(NamedTuple):
    """A partition without a leader; `replicas`: the brokers that have it, `isr`: those of them that may lead it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ClusterStatus(NamedTuple):
    """The status of a cluster.

    Attributes:
        cluster_id: its id.
        controller: broker id, None = no broker is the controller.
        brokers: all live brokers.
        not_registered: ids of brokers that have replicas, but are down or have lost their session.
        errors: why brokers do not answer.
        topics, partitions: their numbers.
        leaderless: the partitions without a leader.
        replicas: numbers of partitions whose replicas are not in sync or not led as preferred.
        invalid_nodes: nodes of the tree that the cluster leaves out; brokers name at most 1,000.
        invalid_node_count: their number.
        transaction_version: the level of the feature `transaction.version`, 0 = it is not finalized.
    """

    cluster_id: str
    controller: int | None
    brokers: list[BrokerStatus]
    not_registered: list[int]
    errors: dict[int, KafkaError]
    topics: int
    partitions: int
    leaderless: list[PartitionStatus]
    replicas: ReplicaCounts
    invalid_nodes: list[NodeStatus]
    invalid_node_count: int
    transaction_version: int

    @property
    def problems(self) -> list[str]:
        """One line for each fault; none = the cluster is complete."""
        found = [] if self.controller is not None else ["no broker is the controller"]
        found += [f"broker {each} has replicas, but is not registered: start it" for each in self.not_registered]
        found += [failure_line(broker, error) for broker, error in self.errors.items()]
        trees = {each.coordination for each in self.brokers if each.answers and not each.denied}
        if len(trees) > 1:
            found.append(f"brokers use different coordination: {', '.join(sorted(map(str, trees)))}")
        found += [
            f"broker {each.broker} has not reached {each.coordination} for {each.outage_s:.0f} s: "
            f"it serves, but changes of topics, configs and in-sync replicas wait or fail{waiting_changes(each)}"
            for each in self.brokers
            if each.outage_s is not None
        ]
        if self.leaderless:
            found.append(leaderless_line(self.leaderless))
        if self.replicas.under_replicated:
            found.append(
                f"{self.replicas.under_replicated} partition(s) have replicas that are not in sync, "
                f"{self.replicas.under_min_isr} of them reject acks=all: "
                "see `kafkalite topic describe --under-replicated`"
            )
        if self.invalid_node_count:
            found.append(f"{self.invalid_node_count} node(s) of the tree are invalid, and left out")
        return found


def failure_line(broker: int, error: KafkaError) -> str:
    """The line about a broker whose configs are unknown."""
    if isinstance(error, AuthorizationError):
        text = f"broker {broker} does not show its state: {error}"
        return with_user(with_right(error.code, text, "describe-configs"))
    return f"broker {broker} does not answer: {error}"


def leaderless_line(leaderless: Sequence[PartitionStatus]) -> str:
    """The line about partitions without a leader: only an in-sync replica is elected without loss."""
    in_sync = sorted({broker for each in leaderless for broker in each.isr})
    step = f": start broker {', '.join(map(str, in_sync))}, or see its log if it runs" if in_sync else ""
    return f"{len(leaderless)} partition(s) have no leader{step}"


def waiting_changes(broker: BrokerStatus) -> str:
    """The end of a line about an outage: how many changes of in-sync replicas wait."""
    return f"; {broker.pending_isr_changes} of in-sync replicas wait" if broker.pending_isr_changes else ""


async def read_status(admin: Admin, timeout_s: float) -> ClusterStatus:
    """Ask the cluster, and each of its brokers for at most `timeout_s` seconds. Raises KafkaError."""
    described = await admin.cluster.describe()
    topics = await admin.topics.list()
    levels = (await admin.cluster.features()).finalized
    resources = {each.broker_id: Resource.broker(each.broker_id) for each in described.brokers}
    outcomes = await admin.configs.describe(*resources.values(), names=COORDINATION_KEYS, timeout=timeout_s)
    errors = {broker: outcomes.errors[each] for broker, each in resources.items() if each in outcomes.errors}
    coordinations = {
        broker: next(filter(None, (each.value for each in outcomes[resource].values())), None)
        for broker, resource in resources.items()
        if broker not in errors
    }
    sessions = await read_sessions(admin, coordinations, timeout_s)
    imbalances = imbalances_of(topics)
    brokers = []
    for node in sorted(described.brokers, key=lambda each: each.broker_id):
        broker = node.broker_id
        denied = isinstance(errors.get(broker), AuthorizationError)
        answers = denied or broker not in errors
        session, imbalance = sessions.get(broker), imbalances.get(broker, 0)
        own = (None,) * 3 if session is None else (session.outage_s, session.replica_lag, session.pending_isr_changes)
        brokers.append(
            BrokerStatus(
                *node[:4],
                broker == described.controller,
                answers,
                denied,
                coordinations.get(broker),
                own[0],
                imbalance,
                *own[1:],
            )
        )
    leaderless = list(without_leader(topics))
    partitions = sum(len(each.partitions) for each in topics)
    return ClusterStatus(
        described.cluster_id,
        described.controller,
        brokers,
        without_registration(topics, resources),
        errors,
        len(topics),
        partitions,
        leaderless,
        await count_replicas(admin, topics),
        node_statuses(sessions.values()),
        max((each.invalid_node_count for each in sessions.values()), default=0),
        levels.get(TRANSACTION_VERSION, 0),
    )


async def read_sessions(
    admin: Admin, coordinations: Mapping[int, str | None], timeout_s: float
) -> Mapping[int, Coordination]:
    """Ask the brokers of a cluster for their coordination. Those that do not know the request are left out."""
    asked = [broker for broker, coordination in coordinations.items() if coordination is not None]
    if not asked:
        return {}
    return (await admin.cluster.coordination(*asked, timeout=timeout_s)).results


def without_registration(topics: Iterable[TopicDescription], registered: Container[int]) -> list[int]:
    """Return the ids of brokers that have replicas, and are not among the registered ones, in order."""
    replicas = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    return sorted(broker for broker in replicas if broker not in registered)


def without_leader(topics: Iterable[TopicDescription]) -> Iterable[PartitionStatus]:
    """Yield the partitions without a leader."""
    for topic in sorted(topics):
        for each in topic.partitions:
            if each.leader is None:
                yield PartitionStatus(topic.name, each.partition, each.replicas, each.isr)
