"""The authorisation matrix: requests of every API key that clients send, and the ACLs with which they are sent.

`outcome` reduces a response to what authorisation decides: names, authorization errors, ids and operations. What Apache
Kafka 4.4 returned is in `authorization_answers.json`, which `record_authorization.py` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkalite._speedups.codec import StructBase
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest
from kafkalite.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkalite.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkalite.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkalite.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkalite.protocol.messages.list_transactions import ListTransactionsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkalite.protocol.messages.update_features import UpdateFeaturesRequest
from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkalite.protocol.schema import Request
from kafkalite.state.authorizer.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from tests.kit.server import batch

PRINCIPAL, ROOT = "User:alice", "User:root"
PREFIX = "ours-"
TOPIC, OTHER_TOPIC = "ours-topic", "theirs-topic"
GROUP, OTHER_GROUP = "ours-group", "theirs-group"
TRANSACTION, OTHER_TRANSACTION = "ours-id", "theirs-id"
GONE, DOOMED, AUTOMATIC = "ours-gone", "ours-doomed", "ours-automatic"
BROKER = "1"
CREATION = "creation"
UNKNOWN_PRODUCER = 999_999  # a producer id
AUTHORIZATION_ERRORS = frozenset({29, 30, 31, 53})
CODES = ("error_code", "partition_error_code", "topic_config_error_code")
NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "partition_index")
LISTED = frozenset({"Metadata", "ListGroups", "ListTransactions", "DescribeTopicPartitions", "OffsetFetch"})
RESOURCES = {
    AclResourceType.TOPIC: (TOPIC, GONE, DOOMED, AUTOMATIC),
    AclResourceType.GROUP: (GROUP, GONE),
    AclResourceType.TRANSACTIONAL_ID: (TRANSACTION,),
    AclResourceType.CLUSTER: (CLUSTER_NAME,),
}
RIGHTS = tuple(
    (resource_type, operation) for resource_type in RESOURCES for operation in SUPPORTED_OPERATIONS[resource_type]
)


class Case(NamedTuple):
    """One request in one version; the name of its class and `note` are its label."""

    request: Request
    version: int
    note: str = ""

    @property
    def label(self) -> str:
        name = type(self.request).__name__.removesuffix("Request")
        return f"{name} v{self.version}{' ' if self.note else ''}{self.note}"


class Phase(NamedTuple):
    """A set of ACLs.

    Arguments:
        label: its name.
        acls: of the principal.
        user: who sends the requests.
        everyone: `allow.everyone.if.no.acl.found`.
    """

    label: str
    acls: tuple[AclBinding, ...] = ()
    user: str = PRINCIPAL
    everyone: bool = False


def acl(
    resource_type: AclResourceType,
    name: str,
    operation: AclOperation = AclOperation.ALL,
    permission: PermissionType = PermissionType.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    """An ACL of the principal."""
    return AclBinding(ResourcePattern(resource_type, name, pattern), Acl(PRINCIPAL, "*", operation, permission))


def phases() -> Iterator[Phase]:
    """The ACL sets of the matrix."""
    named = [(kind, name) for kind, names in RESOURCES.items() for name in names]
    every = tuple(acl(kind, CLUSTER_NAME if kind is AclResourceType.CLUSTER else "*") for kind in RESOURCES)
    cluster = acl(AclResourceType.CLUSTER, CLUSTER_NAME)
    prefixed = [
        acl(kind, PREFIX, pattern=PatternType.PREFIXED) for kind in RESOURCES if kind is not AclResourceType.CLUSTER
    ]
    denied = [acl(*each, permission=PermissionType.DENY) for each in named]
    yield Phase("no ACL")
    yield Phase("literal", tuple(acl(*each) for each in named))
    yield Phase("prefixed", (*prefixed, cluster))
    yield Phase("any name", every)
    yield Phase("deny", (*every, *denied))
    yield Phase("super user", user=ROOT)
    yield Phase("default allow", everyone=True)
    for kind, operation in RIGHTS:
        names = RESOURCES[kind]
        right = f"{operation.title} on {kind.title}"
        yield Phase(f"only {right}", tuple(acl(kind, name, operation) for name in names))
        deny = tuple(acl(kind, name, operation, PermissionType.DENY) for name in names)
        yield Phase(f"without {right}", (*every, *deny))


def cases(topic_id: bytes, doomed_id: bytes) -> Iterator[Case]:
    """The requests; `topic_id`, `doomed_id`: of existing topics, of which the second one may be deleted."""
    yield from data_cases(topic_id)
    yield from group_cases()
    yield from metadata_cases(topic_id)
    yield from topic_cases(doomed_id)
    yield from config_cases()
    yield from transaction_cases()
    yield from cluster_cases()
    created = [MetadataRequest.MetadataRequestTopic(name=AUTOMATIC)]
    yield Case(MetadataRequest(topics=created, allow_auto_topic_creation=True), 12, CREATION)


def data_cases(topic_id: bytes) -> Iterator[Case]:
    """Produce, Fetch and what consumers ask about partitions."""
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=batch(b"v"))
    named = [data(name=name, partition_data=[part]) for name in (TOPIC, OTHER_TOPIC)]
    yield Case(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=named), 12)
    by_id = [data(topic_id=topic_id, partition_data=[part])]
    yield Case(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=by_id), 13)
    asked = FetchRequest.FetchTopic
    wanted = asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [asked(topic=name, partitions=[wanted]) for name in (TOPIC, OTHER_TOPIC)]
    fetch = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "session_epoch": -1}
    yield Case(FetchRequest(**fetch, topics=topics, forgotten_topics_data=[]), 12)
    topics = [asked(topic_id=topic_id, partitions=[wanted])]
    yield Case(FetchRequest(**fetch, topics=topics, forgotten_topics_data=[]), 16)
    offsets = ListOffsetsRequest.ListOffsetsTopic
    at = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    look_ups = [offsets(name=name, partitions=[at]) for name in (TOPIC, OTHER_TOPIC)]
    yield Case(ListOffsetsRequest(replica_id=-1, topics=look_ups), 7)
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    epoch = epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    yield Case(
        OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[epochs(topic=name, partitions=[epoch]) for name in (TOPIC, OTHER_TOPIC)]
        ),
        4,
    )
    producers = DescribeProducersRequest.TopicRequest
    yield Case(
        DescribeProducersRequest(topics=[producers(name=name, partition_indexes=[0]) for name in (TOPIC, OTHER_TOPIC)]),
        0,
    )


def group_cases() -> Iterator[Case]:
    """Groups and their offsets. None of the requests changes a group."""
    commits = OffsetCommitRequest.OffsetCommitRequestTopic
    offset = commits.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topics = [commits(name=name, partitions=[offset]) for name in (TOPIC, OTHER_TOPIC)]
    committed = {"generation_id_or_member_epoch": -1, "member_id": ""}
    for version in (2, 8):
        yield Case(OffsetCommitRequest(group_id=GROUP, topics=topics, **committed), version)
    wanted = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in (TOPIC, OTHER_TOPIC)
    ]
    for version in (1, 7):
        yield Case(OffsetFetchRequest(group_id=GROUP, topics=wanted), version)
    yield Case(OffsetFetchRequest(group_id=GROUP, topics=None), 7, "all topics")
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    of_group = [group.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in (TOPIC, OTHER_TOPIC)]
    both = [group(group_id=name, topics=of_group) for name in (GROUP, OTHER_GROUP)]
    yield Case(OffsetFetchRequest(groups=both), 8)
    yield Case(OffsetFetchRequest(groups=[group(group_id=GROUP, topics=None)]), 8, "all topics")
    deleted = OffsetDeleteRequest.OffsetDeleteRequestTopic
    part = deleted.OffsetDeleteRequestPartition(partition_index=7)
    yield Case(
        OffsetDeleteRequest(
            group_id=GROUP, topics=[deleted(name=name, partitions=[part]) for name in (TOPIC, OTHER_TOPIC)]
        ),
        0,
    )
    for kind, names in ((0, (GROUP, OTHER_GROUP)), (1, (TRANSACTION, OTHER_TRANSACTION))):
        yield Case(FindCoordinatorRequest(key=names[0], key_type=kind), 3, f"type {kind}")
        yield Case(FindCoordinatorRequest(coordinator_keys=list(names), key_type=kind), 4, f"type {kind}")
    yield Case(
        JoinGroupRequest(
            group_id=GONE,
            session_timeout_ms=1,  # is too short
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        5,
    )
    yield Case(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="unknown"), 4)
    yield Case(LeaveGroupRequest(group_id=GROUP, members=[LeaveGroupRequest.MemberIdentity(member_id="unknown")]), 4)
    yield Case(SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="unknown", assignments=[]), 4)
    yield Case(DescribeGroupsRequest(groups=[GROUP, OTHER_GROUP], include_authorized_operations=True), 5)
    yield Case(ListGroupsRequest(), 4)
    yield Case(DeleteGroupsRequest(groups_names=[GONE, "theirs-gone"]), 2)
    yield Case(
        ConsumerGroupHeartbeatRequest(
            group_id=GONE,
            member_id="unknown",
            member_epoch=5,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        ),
        1,
    )
    yield Case(ConsumerGroupDescribeRequest(group_ids=[GROUP, OTHER_GROUP]), 1)


def metadata_cases(topic_id: bytes) -> Iterator[Case]:
    """What clients ask about topics."""
    wanted = MetadataRequest.MetadataRequestTopic
    names = [wanted(name=name) for name in (TOPIC, OTHER_TOPIC, GONE)]
    yield Case(
        MetadataRequest(topics=names, allow_auto_topic_creation=False, include_topic_authorized_operations=True), 12
    )
    yield Case(MetadataRequest(topics=names, allow_auto_topic_creation=False), 4)
    ids = [wanted(name=None, topic_id=topic_id)]
    yield Case(MetadataRequest(topics=ids, allow_auto_topic_creation=False), 12, "by id")
    yield Case(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12, "all topics")
    yield Case(MetadataRequest(topics=[]), 0, "all topics")
    yield Case(
        MetadataRequest(topics=None, allow_auto_topic_creation=False, include_cluster_authorized_operations=True),
        10,
        "operations",
    )
    described = DescribeTopicPartitionsRequest.TopicRequest
    some = [described(name=name) for name in (TOPIC, OTHER_TOPIC)]
    for label, topics in (("", some), ("all topics", [])):
        yield Case(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2000, cursor=None), 0, label)


def topic_cases(doomed_id: bytes) -> Iterator[Case]:
    """Changes of topics."""
    created = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in (GONE, "theirs-new")
    ]
    yield Case(CreateTopicsRequest(topics=created, validate_only=True), 7)
    yield Case(DeleteTopicsRequest(topic_names=[GONE, "theirs-gone"], timeout_ms=10_000), 5)
    states = [DeleteTopicsRequest.DeleteTopicState(name=GONE), DeleteTopicsRequest.DeleteTopicState(topic_id=doomed_id)]
    yield Case(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
    records = DeleteRecordsRequest.DeleteRecordsTopic
    start = records.DeleteRecordsPartition(partition_index=0, offset=0)
    yield Case(
        DeleteRecordsRequest(
            topics=[records(name=name, partitions=[start]) for name in (TOPIC, OTHER_TOPIC)], timeout_ms=10_000
        ),
        2,
    )
    more = [
        CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2, assignments=None)
        for name in (TOPIC, OTHER_TOPIC)
    ]
    yield Case(CreatePartitionsRequest(topics=more, timeout_ms=10_000, validate_only=True), 3)


def config_cases() -> Iterator[Case]:
    """Configs of topics, brokers and groups."""
    asked = DescribeConfigsRequest.DescribeConfigsResource
    kinds = ((2, TOPIC), (2, OTHER_TOPIC), (4, BROKER), (32, GROUP))
    resources = [asked(resource_type=kind, resource_name=name, configuration_keys=["none"]) for kind, name in kinds]
    yield Case(DescribeConfigsRequest(resources=resources), 4)
    yield Case(DescribeConfigsRequest(resources=resources[:3]), 4, "without a group")
    altered = AlterConfigsRequest.AlterConfigsResource
    yield Case(
        AlterConfigsRequest(
            resources=[altered(resource_type=kind, resource_name=name, configs=[]) for kind, name in kinds[:3]],
            validate_only=True,
        ),
        2,
    )
    changed = IncrementalAlterConfigsRequest.AlterConfigsResource
    yield Case(
        IncrementalAlterConfigsRequest(
            resources=[changed(resource_type=kind, resource_name=name, configs=[]) for kind, name in kinds],
            validate_only=True,
        ),
        1,
    )


def transaction_cases() -> Iterator[Case]:
    """Transactions; the producer ids belong to no transaction."""
    yield Case(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000), 4)
    yield Case(InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=10_000), 4, "transactional")
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    yield Case(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=UNKNOWN_PRODUCER,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[added(name=name, partitions=[0]) for name in (TOPIC, OTHER_TOPIC)],
        ),
        3,
    )
    of = {"transactional_id": TRANSACTION, "producer_id": UNKNOWN_PRODUCER, "producer_epoch": 0}
    yield Case(AddOffsetsToTxnRequest(**of, group_id=GROUP), 3)
    commits = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    offset = commits.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_leader_epoch=-1, committed_metadata=""
    )
    topics = [commits(name=name, partitions=[offset]) for name in (TOPIC, OTHER_TOPIC)]
    yield Case(TxnOffsetCommitRequest(**of, group_id=GROUP, topics=topics), 3)
    yield Case(EndTxnRequest(**of, committed=False), 3)
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    marked = [marker.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[7])]
    yield Case(
        WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=UNKNOWN_PRODUCER,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=marked,
                    coordinator_epoch=0,
                )
            ]
        ),
        1,
    )
    yield Case(DescribeTransactionsRequest(transactional_ids=[TRANSACTION, OTHER_TRANSACTION]), 0)
    yield Case(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)


def cluster_cases() -> Iterator[Case]:
    """The cluster."""
    moved = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    part = moved.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    yield Case(AlterReplicaLogDirsRequest(dirs=[moved(path="/none", topics=[part])]), 2)
    yield Case(DescribeLogDirsRequest(topics=[]), 4)
    elected = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
    yield Case(ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=10_000), 2)
    cancelled = AlterPartitionReassignmentsRequest.ReassignableTopic
    none = cancelled.ReassignablePartition(partition_index=0, replicas=None)
    yield Case(AlterPartitionReassignmentsRequest(topics=[cancelled(name=TOPIC, partitions=[none])]), 0)
    yield Case(ListPartitionReassignmentsRequest(topics=None), 0)
    yield Case(DescribeClientQuotasRequest(components=[], strict=False), 1)
    entry = AlterClientQuotasRequest.EntryData
    entries = [
        entry(
            entity=[entry.EntityData(entity_type="user", entity_name="bob")],
            ops=[entry.OpData(key="producer_byte_rate", value=1e6, remove=False)],
        )
    ]
    yield Case(AlterClientQuotasRequest(entries=entries, validate_only=True), 1)
    yield Case(
        DescribeUserScramCredentialsRequest(users=[DescribeUserScramCredentialsRequest.UserName(name="unknown")]), 0
    )
    yield Case(UpdateFeaturesRequest(feature_updates=[], validate_only=True), 1)
    yield Case(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    yield Case(ListConfigResourcesRequest(resource_types=[16]), 1)


def outcome(response: Any) -> str:
    """Reduce a response to what authorisation decides.

    Every struct with a name is written as `name=CODE` with an authorization error; without one only where the response
    is a list, or as `name+id` where it has a topic id. Bit fields of operations are numbers.
    """
    listed = type(response).__name__.removesuffix("Response") in LISTED
    return " ".join(sorted(set(facts(response, "", listed=listed))))


def facts(message: Any, path: str, *, listed: bool) -> Iterator[str]:
    """The facts of a struct and of those in it."""
    values = {each.name: getattr(message, each.name) for each in type(message).__fields__}
    name = next((str(values[each]) for each in NAMES if values.get(each) not in (None, "")), "")
    path = f"{path}/{name}" if name else path
    codes = [values[each] for each in CODES if values.get(each) in AUTHORIZATION_ERRORS]
    yield from (f"{path or '*'}={code}" for code in codes)
    if listed and path.count("/") == 1 and not name.startswith("__"):
        yield path + ("+id" if any(values.get("topic_id") or b"") else "")
    yield from (f"{path}:{value}" for key, value in values.items() if key.endswith("_operations") and value > 0)
    for value in values.values():
        if isinstance(value, list):
            for each in value:
                if isinstance(each, StructBase):
                    yield from facts(each, path, listed=listed)
