"""Everything this broker serves: one row per API key. Dispatch, ApiVersions and authorisation are derived from these
rows.

A row names the request and response classes (whose version ranges are Kafka 4.3's), the handler, and what the
principal must be allowed to do. The advertised minimum differs from what is decoded only for Produce, which old
librdkafka must see from 0 (KAFKA-18659).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from kafkalite._speedups.codec import decode
from kafkalite.protocol.extensions import create_group as group_created
from kafkalite.protocol.extensions import delete_group as group_deleted
from kafkalite.protocol.extensions import heartbeat_plus as heartbeats_plus
from kafkalite.protocol.extensions import list_groups_plus as groups_plus
from kafkalite.protocol.extensions import register_consumer as registering
from kafkalite.protocol.extensions import rewind_consumer as rewinding
from kafkalite.protocol.messages import alter_configs as alter
from kafkalite.protocol.messages import api_versions as versions
from kafkalite.protocol.messages import consumer_group_describe as consumer_groups
from kafkalite.protocol.messages import consumer_group_heartbeat as consumer_heartbeats
from kafkalite.protocol.messages import create_partitions as partitions
from kafkalite.protocol.messages import create_topics as creation
from kafkalite.protocol.messages import delete_groups as groups_deleted
from kafkalite.protocol.messages import delete_records as records
from kafkalite.protocol.messages import delete_topics as deletion
from kafkalite.protocol.messages import describe_cluster as cluster
from kafkalite.protocol.messages import describe_configs as configs
from kafkalite.protocol.messages import describe_groups as described
from kafkalite.protocol.messages import describe_log_dirs as log_dirs
from kafkalite.protocol.messages import describe_producers as producers
from kafkalite.protocol.messages import describe_topic_partitions as topic_partitions
from kafkalite.protocol.messages import fetch as fetching
from kafkalite.protocol.messages import find_coordinator as coordinator
from kafkalite.protocol.messages import heartbeat as heartbeats
from kafkalite.protocol.messages import incremental_alter_configs as incremental
from kafkalite.protocol.messages import init_producer_id as producer_id
from kafkalite.protocol.messages import join_group as joining
from kafkalite.protocol.messages import leave_group as leaving
from kafkalite.protocol.messages import list_groups as groups_listed
from kafkalite.protocol.messages import list_offsets as offsets
from kafkalite.protocol.messages import list_partition_reassignments as reassignments
from kafkalite.protocol.messages import metadata as metadata_messages
from kafkalite.protocol.messages import offset_commit as commits
from kafkalite.protocol.messages import offset_delete as offsets_deleted
from kafkalite.protocol.messages import offset_fetch as committed
from kafkalite.protocol.messages import offset_for_leader_epoch as epochs
from kafkalite.protocol.messages import produce as producing
from kafkalite.protocol.messages import sync_group as syncing
from kafkalite.protocol.packed_commits import decode_commit
from kafkalite.server.handlers.alter_configs import alter_configs
from kafkalite.server.handlers.api_versions import api_versions
from kafkalite.server.handlers.create_partitions import create_partitions
from kafkalite.server.handlers.create_topics import create_topics
from kafkalite.server.handlers.delete_records import delete_records
from kafkalite.server.handlers.delete_topics import delete_topics
from kafkalite.server.handlers.describe_cluster import describe_cluster
from kafkalite.server.handlers.describe_configs import describe_configs
from kafkalite.server.handlers.describe_log_dirs import describe_log_dirs
from kafkalite.server.handlers.describe_producers import describe_producers
from kafkalite.server.handlers.describe_topic_partitions import describe_topic_partitions
from kafkalite.server.handlers.fetch import fetch
from kafkalite.server.handlers.incremental_alter_configs import incremental_alter_configs
from kafkalite.server.handlers.init_producer_id import init_producer_id
from kafkalite.server.handlers.list_offsets import list_offsets
from kafkalite.server.handlers.list_partition_reassignments import list_partition_reassignments
from kafkalite.server.handlers.metadata import metadata
from kafkalite.server.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from kafkalite.server.handlers.produce import produce


@dataclass(frozen=True, slots=True)
class Row:
    """One API key.

    `request`, `response`: message classes; `handler`: (call, request) -> response, or None when it answers through the
    call;
    `operation`: what the principal must be allowed, as "Operation Resource", "" = anybody; `advertised_from`: None =
    as decoded; `decode`: as `codec.decode`, perhaps to something else that the handler takes as well.
    """

    request: type[Any]
    response: type[Any]
    handler: Callable[[Any, Any], Any]
    operation: str
    advertised_from: int | None = None
    decode: Callable[[Any, int, memoryview, bool, int], Any] = decode
    api_key: int = field(init=False)
    name: str = field(init=False)
    version_min: int = field(init=False)
    version_max: int = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "api_key", int(self.request.api_key))
        put(self, "name", self.request.__name__.removesuffix("Request"))
        put(self, "version_min", int(self.request.versions[0]))
        put(self, "version_max", int(self.request.versions[1]))

    @property
    def advertised_min(self) -> int:
        return self.version_min if self.advertised_from is None else self.advertised_from


def group_handler(name: str) -> Callable[[Any, Any], Any]:
    """The handler of this name, imported with its first request: groups are loaded on first use (`Broker.groups`)."""

    found: Callable[[Any, Any], Any] | None = None

    def handler(call: Any, request: Any) -> Any:
        nonlocal found
        if found is None:
            found = getattr(import_module(f"kafkalite.server.handlers.{name}"), name)
        return found(call, request)

    return handler


ROWS = (
    Row(producing.ProduceRequest, producing.ProduceResponse, produce, "Write Topic", advertised_from=0),
    Row(fetching.FetchRequest, fetching.FetchResponse, fetch, "Read Topic"),
    Row(offsets.ListOffsetsRequest, offsets.ListOffsetsResponse, list_offsets, "Describe Topic"),
    Row(metadata_messages.MetadataRequest, metadata_messages.MetadataResponse, metadata, "Describe Topic"),
    Row(
        commits.OffsetCommitRequest,
        commits.OffsetCommitResponse,
        group_handler("offset_commit"),
        "Read Group",
        decode=decode_commit,
    ),
    Row(committed.OffsetFetchRequest, committed.OffsetFetchResponse, group_handler("offset_fetch"), "Describe Group"),
    Row(
        coordinator.FindCoordinatorRequest,
        coordinator.FindCoordinatorResponse,
        group_handler("find_coordinator"),
        "Describe Group",
    ),
    Row(joining.JoinGroupRequest, joining.JoinGroupResponse, group_handler("join_group"), "Read Group"),
    Row(heartbeats.HeartbeatRequest, heartbeats.HeartbeatResponse, group_handler("heartbeat"), "Read Group"),
    Row(leaving.LeaveGroupRequest, leaving.LeaveGroupResponse, group_handler("leave_group"), "Read Group"),
    Row(syncing.SyncGroupRequest, syncing.SyncGroupResponse, group_handler("sync_group"), "Read Group"),
    Row(
        described.DescribeGroupsRequest,
        described.DescribeGroupsResponse,
        group_handler("describe_groups"),
        "Describe Group",
    ),
    Row(
        groups_listed.ListGroupsRequest,
        groups_listed.ListGroupsResponse,
        group_handler("list_groups"),
        "Describe Group",
    ),
    Row(versions.ApiVersionsRequest, versions.ApiVersionsResponse, api_versions, ""),
    Row(creation.CreateTopicsRequest, creation.CreateTopicsResponse, create_topics, "Create Topic"),
    Row(deletion.DeleteTopicsRequest, deletion.DeleteTopicsResponse, delete_topics, "Delete Topic"),
    Row(records.DeleteRecordsRequest, records.DeleteRecordsResponse, delete_records, "Delete Topic"),
    Row(
        producer_id.InitProducerIdRequest,
        producer_id.InitProducerIdResponse,
        init_producer_id,
        "IdempotentWrite Cluster",
    ),
    Row(
        epochs.OffsetForLeaderEpochRequest,
        epochs.OffsetForLeaderEpochResponse,
        offset_for_leader_epoch,
        "Describe Topic",
    ),
    Row(configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, describe_configs, "DescribeConfigs Topic"),
    Row(alter.AlterConfigsRequest, alter.AlterConfigsResponse, alter_configs, "AlterConfigs Topic"),
    Row(log_dirs.DescribeLogDirsRequest, log_dirs.DescribeLogDirsResponse, describe_log_dirs, "Describe Cluster"),
    Row(partitions.CreatePartitionsRequest, partitions.CreatePartitionsResponse, create_partitions, "Alter Topic"),
    Row(
        groups_deleted.DeleteGroupsRequest,
        groups_deleted.DeleteGroupsResponse,
        group_handler("delete_groups"),
        "Delete Group",
    ),
    Row(
        incremental.IncrementalAlterConfigsRequest,
        incremental.IncrementalAlterConfigsResponse,
        incremental_alter_configs,
        "AlterConfigs Topic",
    ),
    Row(
        reassignments.ListPartitionReassignmentsRequest,
        reassignments.ListPartitionReassignmentsResponse,
        list_partition_reassignments,
        "Describe Cluster",
    ),
    Row(
        offsets_deleted.OffsetDeleteRequest,
        offsets_deleted.OffsetDeleteResponse,
        group_handler("offset_delete"),
        "Delete Group",
    ),
    Row(cluster.DescribeClusterRequest, cluster.DescribeClusterResponse, describe_cluster, "Describe Cluster"),
    Row(
        consumer_heartbeats.ConsumerGroupHeartbeatRequest,
        consumer_heartbeats.ConsumerGroupHeartbeatResponse,
        group_handler("consumer_group_heartbeat"),
        "Read Group",
    ),
    Row(
        consumer_groups.ConsumerGroupDescribeRequest,
        consumer_groups.ConsumerGroupDescribeResponse,
        group_handler("consumer_group_describe"),
        "Describe Group",
    ),
    Row(producers.DescribeProducersRequest, producers.DescribeProducersResponse, describe_producers, "Read Topic"),
    Row(
        topic_partitions.DescribeTopicPartitionsRequest,
        topic_partitions.DescribeTopicPartitionsResponse,
        describe_topic_partitions,
        "Describe Topic",
    ),
    # kafkalite's own, docs/protocol-extensions.md
    Row(
        groups_plus.ListGroupsPlusRequest,
        groups_plus.ListGroupsPlusResponse,
        group_handler("list_groups_plus"),
        "Describe Group",
    ),
    Row(
        group_created.CreateGroupRequest,
        group_created.CreateGroupResponse,
        group_handler("create_group"),
        "Read Group",
    ),
    Row(
        group_deleted.DeleteGroupRequest,
        group_deleted.DeleteGroupResponse,
        group_handler("delete_group"),
        "Delete Group",
    ),
    Row(
        registering.RegisterConsumerRequest,
        registering.RegisterConsumerResponse,
        group_handler("register_consumer"),
        "Read Group",
    ),
    Row(
        heartbeats_plus.HeartbeatPlusRequest,
        heartbeats_plus.HeartbeatPlusResponse,
        group_handler("heartbeat_plus"),
        "Read Group",
    ),
    Row(
        rewinding.RewindConsumerRequest,
        rewinding.RewindConsumerResponse,
        group_handler("rewind_consumer"),
        "Read Group",
    ),
)
