"""Kafka's znodes: paths and contents, byte for byte as Apache Kafka 3.9 writes them (ZkData.scala).

The additions of kafkalite are below `/kafkalite`: the log directory of each partition, stored before its first append;
the configs of groups, which Kafka 3.9 does not store; the finalized features; and the ids of recently deleted topics,
so that a start completes their deletion and keeps their logs apart from those of new topics.

Here are topics, configs and producer ids; `brokers` has the nodes of brokers and features, `features` that of our own
features, `controller` those of the controller and its notifications, `fields` reads JSON.

Contents of older versions of Kafka and unknown fields are accepted; invalid contents raise `ZnodeError`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from kafkalite.coordination.tree import ANY_VERSION, Create, Delete, Operation, Set
from kafkalite.coordination.znodes.fields import INT32_MAX, ZnodeReader, dump, is_whole, parse
from kafkalite.coordination.znodes.fields import ZnodeError as ZnodeError
from kafkalite.model import RESERVED_UUIDS, uuid_from_text, uuid_text

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
QUOTA_ROOTS = (USER_CONFIGS, CLIENT_CONFIGS, IP_CONFIGS)
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = "config_change_"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/{CONFIG_CHANGE}"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
DIRECTORIES = "/kafkalite/directories"
GROUP_CONFIGS = "/kafkalite/groups"
GROUP_CHANGES = "/kafkalite/group_changes"  # only in a cluster; Kafka's brokers know no changes of groups
DELETED_TOPICS = "/kafkalite/deleted"
FEATURES = "/kafkalite/features"
SCRAM_SECRET = "/kafkalite/scram_secret"
ALL_BROKERS = "<default>"

# Created at every start if missing (PersistentZkPaths), and those of kafkalite.
PERSISTENT = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    "/log_dir_event_notification",
    TOPIC_CONFIGS,
    "/config/clients",
    USER_CONFIGS,
    BROKER_CONFIGS,
    "/config/ips",
    DIRECTORIES,
    GROUP_CONFIGS,
    DELETED_TOPICS,
    FEATURES,
)


# Paths.


def topic_path(topic: str) -> str:
    """Node of a topic."""
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, partition: int) -> str:
    """Node of a partition; its state is below."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Node of a partition's leader and in-sync replicas."""
    return f"{partition_path(topic, partition)}/state"


def topic_config_path(topic: str) -> str:
    """Node of a topic's configs."""
    return f"{TOPIC_CONFIGS}/{quote(topic, safe='')}"


def broker_config_path(broker_id: int | None) -> str:
    """Node of a broker's dynamic configs; None = those of all brokers."""
    return f"{BROKER_CONFIGS}/{ALL_BROKERS if broker_id is None else broker_id}"


def group_config_path(group: str) -> str:
    """Node of a group's configs. The names of groups are free: "." and ".." are written otherwise, too."""
    return f"{GROUP_CONFIGS}/{quote(group, safe='').replace('.', '%2E')}"


def group_of(node: str) -> str:
    """The group whose configs this node below `GROUP_CONFIGS` contains."""
    return unquote(node)


def directories_path(topic_id: bytes) -> str:
    """Node above the noted directories of a topic's partitions."""
    return f"{DIRECTORIES}/{uuid_text(topic_id)}"


def directory_path(topic_id: bytes, partition: int) -> str:
    """Node of the noted directory of one partition."""
    return f"{directories_path(topic_id)}/{partition}"


def deleted_topic_path(topic_id: bytes) -> str:
    """Node that records the deletion of a topic."""
    return f"{DELETED_TOPICS}/{uuid_text(topic_id)}"


# Nodes.


def encode_cluster_id(cluster_id: str) -> bytes:
    """`/cluster/id`."""
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """`/cluster/id`; raises ZnodeError."""
    return ZnodeReader(CLUSTER_ID, parse(CLUSTER_ID, data)).text("id")


class TopicNode(NamedTuple):
    """`/brokers/topics/<t>`: the assignment of the partitions. The id is None in nodes of Kafka before 2.8."""

    topic_id: bytes | None
    replicas: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = {}
    removing: Mapping[int, tuple[int, ...]] = {}


def encode_topic(node: TopicNode) -> bytes:
    """Version 3, with the topic's id."""
    fields: dict[str, Any] = {"version": 3}
    if node.topic_id is not None:
        fields["topic_id"] = uuid_text(node.topic_id)
    for name, assignment in zip(("partitions", "adding_replicas", "removing_replicas"), node[1:], strict=True):
        fields[name] = assignment  # JSON has the indexes as strings, tuples as lists
    return dump(fields)


def decode_topic(path: str, data: bytes) -> TopicNode:
    """Any version; raises ZnodeError."""
    fields = ZnodeReader(path, parse(path, data))
    text = fields.optional_text("topic_id")
    try:
        topic_id = None if text is None else uuid_from_text(text)
    except ValueError as error:
        raise fields.wrong("topic_id") from error
    if topic_id in RESERVED_UUIDS:
        raise fields.wrong("topic_id")
    return TopicNode(
        topic_id,
        fields.assignment("partitions"),
        fields.assignment("adding_replicas", optional=True),
        fields.assignment("removing_replicas", optional=True),
    )


class PartitionState(NamedTuple):
    """`.../state`: leader (-1 = none), epochs, in-sync replicas; the node's version is the partition epoch.

    Arguments:
        isr_epochs: the broker epochs in which the in-sync replicas had every acknowledged record, -1 = unknown; () =
            they are not in the node. Apache Kafka ignores this field and the next ones, and drops them with its next
            state.
        eligible: replicas outside the ISR that have every acknowledged record (KIP-966).
        eligible_epochs: their broker epochs, as `isr_epochs`.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = 0
    recovering: bool = False
    isr_epochs: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    eligible_epochs: tuple[int, ...] = ()


def encode_state(state: PartitionState) -> bytes:
    """The state of a partition."""
    fields = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.recovering:
        fields["leader_recovery_state"] = 1
    if state.isr_epochs:
        fields["isr_epochs"] = list(state.isr_epochs)
    if state.eligible:
        fields["eligible_replicas"] = list(state.eligible)
        fields["eligible_epochs"] = list(state.eligible_epochs)
    return dump(fields)


def decode_state(path: str, data: bytes) -> PartitionState:
    """The state of a partition; raises ZnodeError."""
    fields = ZnodeReader(path, parse(path, data))
    leader, isr = fields.whole("leader", minimum=-1), fields.brokers("isr")
    if leader != -1 and leader not in isr:
        raise fields.wrong("leader")
    recovering = fields.whole("leader_recovery_state", 0, minimum=0, maximum=1) == 1
    epochs = fields.broker_epochs("isr_epochs")
    if epochs and len(epochs) != len(isr):
        raise fields.wrong("isr_epochs")
    eligible = fields.optional_brokers("eligible_replicas")
    if not set(eligible).isdisjoint(isr):
        raise fields.wrong("eligible_replicas")
    eligible_epochs = fields.broker_epochs("eligible_epochs")
    if len(eligible_epochs) != len(eligible):
        raise fields.wrong("eligible_epochs")
    return PartitionState(
        leader,
        fields.epoch("leader_epoch"),
        isr,
        fields.epoch("controller_epoch"),
        recovering,
        epochs,
        eligible,
        eligible_epochs,
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    """`/config/<type>/<name>`."""
    return dump({"version": 1, "config": dict(configs)})


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    """`/config/<type>/<name>`; raises ZnodeError."""
    return ZnodeReader(path, parse(path, data)).texts("config")


def encode_config_change(entity_path: str) -> bytes:
    """`/config/changes/config_change_*`: for example `topics/foo`."""
    return dump({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """The type and the name of an entity, as ("topics", "foo"); the name as in the path of its node.

    Versions 1 and 2; raises ZnodeError.
    """
    fields = ZnodeReader(path, parse(path, data))
    version = fields.whole("version")
    if version == 1:
        return fields.text("entity_type"), fields.text("entity_name")
    kind, slash, name = fields.text("entity_path").partition("/")
    if version != 2 or not slash or not name:
        raise fields.wrong("entity_path" if version == 2 else "version")
    return kind, name


class ProducerIdBlock(NamedTuple):
    """`/latest_producer_id_block`: the ids that a broker allocated, both ends included."""

    broker_id: int
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """`/latest_producer_id_block`: the last allocated ids."""
    return dump(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_ids(data: bytes) -> ProducerIdBlock | None:
    """The last allocated ids, None if there are none; raises ZnodeError."""
    if not data:
        return None
    fields = ZnodeReader(PRODUCER_ID_BLOCK, parse(PRODUCER_ID_BLOCK, data))
    return ProducerIdBlock(fields.broker("broker"), fields.whole_text("block_start"), fields.whole_text("block_end"))


def encode_directory(broker_id: int, directory: str) -> bytes:
    """kafkalite's own node: the log directory of a partition, by the directory.id in its `meta.properties`.

    Nodes of older versions contain its path; only their existence is used, so they are not converted.
    """
    return dump({"version": 1, "directories": {str(broker_id): directory}})


def decode_directory(path: str, data: bytes) -> dict[int, str]:
    """Directory by broker; raises ZnodeError."""
    fields = ZnodeReader(path, parse(path, data))
    directories = fields.texts("directories")
    if not all(is_whole(key) and int(key) <= INT32_MAX for key in directories):
        raise fields.wrong("directories")
    return {int(key): value for key, value in directories.items()}


# Changes.


def parents(path: str) -> list[str]:
    """All ancestors of a node except the root, the highest first."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


def create_topic(
    topic: str, node: TopicNode, configs: Mapping[str, str], states: Mapping[int, PartitionState]
) -> list[Operation]:
    """Everything that makes a topic, for one `multi`. Its config node must not exist yet.

    `states`: of the partitions that have another one than a new partition. Kafka's controller, too, takes a partition
    without a state for a new one (PartitionStateMachine.initializePartitionState): its preferred replica leads.
    """
    assert node.topic_id is not None, "new topics have an id"
    return [
        Create(topic_config_path(topic), encode_configs(configs)),
        Create(topic_path(topic), encode_topic(node)),
        Create(f"{topic_path(topic)}/partitions"),
        Create(directories_path(node.topic_id)),
        *create_partitions(topic, states),
    ]


def create_partitions(topic: str, states: Mapping[int, PartitionState]) -> list[Operation]:
    """The nodes of partitions that had no state."""
    operations: list[Operation] = []
    for partition, state in states.items():
        operations.append(Create(partition_path(topic, partition)))
        operations.append(Create(state_path(topic, partition), encode_state(state)))
    return operations


def grow_topic(
    topic: str, node: TopicNode, new: Mapping[int, PartitionState], version: int = ANY_VERSION
) -> list[Operation]:
    """A topic with more partitions; `version` is that of the topic's node, `new` as the `states` of `create_topic`."""
    return [Set(topic_path(topic), encode_topic(node), version), *create_partitions(topic, new)]


def delete_states(topic: str, partitions: Iterable[int]) -> list[Operation]:
    """Remove the nodes of partitions that have a state."""
    operations: list[Operation] = []
    for partition in partitions:
        operations += [Delete(state_path(topic, partition)), Delete(partition_path(topic, partition))]
    return operations


def delete_notes(topic_id: bytes, partitions: Iterable[int]) -> list[Operation]:
    """Remove the notes of partitions whose directory is noted."""
    return [Delete(directory_path(topic_id, partition)) for partition in partitions]


def delete_empty_topic(topic: str, topic_id: bytes) -> list[Operation]:
    """Remove a topic without states and notes."""
    return [
        Delete(f"{topic_path(topic)}/partitions"),
        Delete(topic_path(topic)),
        Delete(topic_config_path(topic)),
        Delete(directories_path(topic_id)),
    ]


def record_deletion(topic_id: bytes) -> Operation:
    """The record of a deleted topic: from then on the topic does not exist, even while some of its nodes do."""
    return Create(deleted_topic_path(topic_id))


def note_directory(
    topic_id: bytes, partition: int, broker_id: int, directory: str, *, again: bool = False
) -> Operation:
    """Store the log directory of a partition, once its files exist and before the first append.

    Arguments:
        topic_id: 16 bytes.
        partition: its index.
        broker_id: of the broker that has the files.
        directory: the id of the log directory.
        again: it was moved from another directory, so the node exists.
    """
    path, data = directory_path(topic_id, partition), encode_directory(broker_id, directory)
    return Set(path, data) if again else Create(path, data)
