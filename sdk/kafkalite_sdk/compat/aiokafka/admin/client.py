"""aiokafka's `AIOKafkaAdminClient` on the engine of `kafkalite_sdk.Admin`."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from kafkalite.model import TopicPartition
from kafkalite.net.client.connection import completing
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite_sdk.admin.admin import Admin
from kafkalite_sdk.admin.configs import Resource
from kafkalite_sdk.admin.topic_types import DEFAULT, TopicDescription
from kafkalite_sdk.admin.topic_types import NewTopic as EngineTopic
from kafkalite_sdk.compat.aiokafka.abc import AbstractTokenProvider
from kafkalite_sdk.compat.aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from kafkalite_sdk.compat.aiokafka.admin.new_partitions import NewPartitions
from kafkalite_sdk.compat.aiokafka.admin.new_topic import NewTopic
from kafkalite_sdk.compat.aiokafka.admin.records_to_delete import RecordsToDelete
from kafkalite_sdk.compat.aiokafka.admin.responses import (
    AlteredResource,
    Response,
    TopicErrorCode,
    code_of,
    describe_resource,
    topic_errors,
)
from kafkalite_sdk.compat.aiokafka.installation import VERSION
from kafkalite_sdk.compat.aiokafka.settings import CLIENT_ARGUMENTS, client_options, warn_of
from kafkalite_sdk.compat.aiokafka.structs import OffsetAndMetadata

GROUP = 0
Altered = AlterConfigsRequest.AlterConfigsResource


class AIOKafkaAdminClient:
    """Administers a cluster; see aiokafka's documentation and docs/aiokafka.md.

    Arguments: those of aiokafka 0.14, with its defaults. Times are in ms.
        api_version, loop: accepted without effect.
    """

    _closed = False
    _started = False

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = f"aiokafka-{VERSION}",
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        api_version: str | None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None:
        arguments = locals()
        warn_of(loop=loop, api_version=api_version)
        options = client_options(**{name: arguments[name] for name in CLIENT_ARGUMENTS})
        self._admin = Admin(bootstrap_servers, default_api_timeout_ms=request_timeout_ms, **cast(Any, options))
        self._client = self._admin._client

    async def start(self) -> None:
        """Connect. Raises KafkaConnectionError."""
        if not self._started:
            await self._admin.start()
            self._started = True

    async def close(self) -> None:
        """End the connections. A second call waits for the first one."""
        self._closed = True
        await self._admin.close()

    # topics

    async def create_topics(
        self, new_topics: list[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> Response:
        """Create topics.

        Arguments:
            new_topics: the topics.
            timeout_ms: None = `request_timeout_ms`.
            validate_only: the broker only checks whether it would create them.

        Returns: `topic_errors` with topic, error_code and error_message.
        """
        topics = [_new_topic(each) for each in new_topics]
        outcomes = await self._admin.topics.create(*topics, validate_only=validate_only, timeout=_seconds(timeout_ms))
        outcomes.ignore_errors()
        return Response(topic_errors=topic_errors(outcomes.ended))

    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> Response:
        """Delete topics. Returns `topic_error_codes` with topic and error_code.

        Arguments:
            topics: names.
            timeout_ms: None = `request_timeout_ms`.
        """
        outcomes = await self._admin.topics.delete(*topics, timeout=_seconds(timeout_ms))
        outcomes.ignore_errors()
        return Response(
            topic_error_codes=[TopicErrorCode(name, code_of(each)) for name, each in outcomes.ended.items()]
        )

    async def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        return [each.name for each in await self._admin.topics.list()]

    async def describe_topics(self, topics: list[str] | None = None) -> list[Any]:
        """Return a dict for each topic; None = all."""
        if topics is None:
            return [_topic(each.name, each) for each in await self._admin.topics.list()]
        outcomes = await self._admin.topics.describe(*topics)
        outcomes.ignore_errors()
        return [_topic(name, each) for name, each in outcomes.ended.items()]

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Response:
        """Add partitions to topics.

        Arguments:
            topic_partitions: by topic.
            timeout_ms: None = `request_timeout_ms`.
            validate_only: the broker only checks whether it would add them.

        Raises: the first error.
        """
        counts = {name: each.total_count for name, each in topic_partitions.items()}
        replicas = {name: each.new_assignments for name, each in topic_partitions.items() if each.new_assignments}
        outcomes = await self._admin.topics.create_partitions(
            counts, replicas=replicas, validate_only=validate_only, timeout=_seconds(timeout_ms)
        )
        outcomes.check()
        return Response(topic_errors=topic_errors(outcomes.ended))

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset. Returns the new first offsets. Raises the first error.

        Arguments:
            records_to_delete: by partition.
            timeout_ms: None = `request_timeout_ms`.
        """
        before = {each: records.before_offset for each, records in records_to_delete.items()}
        return (await self._admin.partitions.delete_records(before, timeout=_seconds(timeout_ms))).check()

    # cluster and configs

    async def describe_cluster(self) -> dict[str, Any]:
        """Return cluster id, controller and brokers."""
        found = await self._admin.cluster.describe()
        brokers = [
            {"node_id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in found.brokers
        ]
        controller_id = -1 if found.controller is None else found.controller
        return {
            "throttle_time_ms": 0,
            "brokers": brokers,
            "cluster_id": found.cluster_id,
            "controller_id": controller_id,
        }

    async def describe_configs(
        self, config_resources: Sequence[ConfigResource], include_synonyms: bool = False
    ) -> list[Response]:
        """Describe configs. Returns a response with `resources` for each resource.

        Arguments:
            config_resources: to describe; with `configs` only these names.
            include_synonyms: the configs behind each config are included.
        """
        return list(
            await asyncio.gather(*(self._described(each, synonyms=include_synonyms) for each in config_resources))
        )

    async def _described(self, resource: ConfigResource, *, synonyms: bool) -> Response:
        wanted = _resource(resource)
        names = tuple(resource.configs) if resource.configs else None
        outcomes = await self._admin.configs.describe(wanted, names=names, synonyms=synonyms)
        outcomes.ignore_errors()
        return Response(resources=[describe_resource(wanted, outcomes.ended[wanted])])

    async def alter_configs(self, config_resources: Sequence[ConfigResource]) -> list[Response]:
        """Replace all configs of resources. Returns a response with `resources` for each resource."""
        return list(await asyncio.gather(*map(self._altered, config_resources)))

    async def _altered(self, resource: ConfigResource) -> Response:
        configs = [Altered.AlterableConfig(name=name, value=value) for name, value in (resource.configs or {}).items()]
        changed = Altered(resource_type=int(resource.resource_type), resource_name=resource.name, configs=configs)
        request = AlterConfigsRequest(resources=[changed], validate_only=False)
        is_broker = resource.resource_type == ConfigResourceType.BROKER
        response = await (
            self._client.call(int(resource.name), request) if is_broker else self._client.call_any(request)
        )
        outcomes = [
            AlteredResource(each.error_code, each.error_message, each.resource_type, each.resource_name)
            for each in response.responses
        ]
        return Response(resources=outcomes)

    # groups

    async def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[Any, ...]]:
        """Return group id and protocol type of each group; `broker_ids` None = of all brokers."""
        brokers = None if broker_ids is None else set(broker_ids)
        groups = await self._admin.groups.list()
        return [(each.group, each.protocol_type) for each in groups if brokers is None or each.coordinator in brokers]

    async def find_coordinator(self, group_id: str, coordinator_type: int = GROUP) -> int:
        """Return the broker id of a coordinator.

        Arguments:
            group_id: group id or transactional id.
            coordinator_type: 0 = of a group, 1 = of a transactional id.
        """
        found: asyncio.Future[int] = self._client.loop.create_future()
        self._client.find_coordinator(group_id, coordinator_type, *completing(found))
        return await found

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[Any]:
        """Describe classic groups. Returns a response with `groups` for each group.

        Arguments:
            group_ids: the groups.
            group_coordinator_id: broker id, None = it is found.
            include_authorized_operations: the operations are included that this client may use.
        """
        responses = []
        for group in group_ids:
            node = await self.find_coordinator(group) if group_coordinator_id is None else group_coordinator_id
            request = DescribeGroupsRequest(groups=[group], include_authorized_operations=include_authorized_operations)
            response = await self._client.call(node, request)
            responses.append(Response(groups=[_group(each) for each in response.groups]))
        return responses

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group.

        Arguments:
            group_id: the group.
            group_coordinator_id: without effect; the coordinator is found.
            partitions: of interest, offset -1 = none is committed; None = those with a committed offset.
        """
        found = (await self._admin.group_offsets.list(group_id))[group_id]
        offsets = {each: OffsetAndMetadata(offset.offset, offset.metadata) for each, offset in found.items()}
        if partitions is None:
            return offsets
        return {each: offsets.get(each, OffsetAndMetadata(-1, "")) for each in partitions}


def _seconds(timeout_ms: int | None) -> float | None:
    return None if not timeout_ms else timeout_ms / 1000


def _new_topic(new: NewTopic) -> EngineTopic:
    if new.replica_assignments:
        return EngineTopic(new.name, DEFAULT, DEFAULT, new.replica_assignments, new.topic_configs)
    return EngineTopic(new.name, new.num_partitions, new.replication_factor, None, new.topic_configs)


def _resource(resource: ConfigResource) -> Resource:
    if resource.resource_type == ConfigResourceType.TOPIC:
        return Resource.topic(resource.name)
    return Resource.broker(int(resource.name))


def _topic(name: str, found: TopicDescription | Exception) -> dict[str, Any]:
    code = code_of(found)
    described = found if isinstance(found, TopicDescription) else None
    partitions = [
        {
            "error_code": 0,
            "partition": each.partition,
            "leader": -1 if each.leader is None else each.leader,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
            "offline_replicas": list(each.offline_replicas),
        }
        for each in (described.partitions if described else ())
    ]
    internal = described is not None and described.internal
    return {"error_code": code, "topic": name, "is_internal": internal, "partitions": partitions}


def _group(group: Any) -> tuple[Any, ...]:
    members = [
        (each.member_id, each.client_id, each.client_host, each.member_metadata, each.member_assignment)
        for each in group.members
    ]
    named = (group.error_code, group.group_id, group.group_state, group.protocol_type, group.protocol_data)
    return (*named, members, group.authorized_operations)
