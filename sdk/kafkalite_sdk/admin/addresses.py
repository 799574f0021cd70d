"""Finds the brokers that serve resources: leaders by Metadata, coordinators by FindCoordinator."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.model import TopicPartition
from kafkalite.net.client.connection import completing
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.coordinators import GROUP, TRANSACTION
from kafkalite_sdk.client.routes import Route

K = TypeVar("K")
ANY_NODE = -1
"""In the place of a broker id: any broker."""

KEY_TYPES = {Route.GROUP: GROUP, Route.TRANSACTION: TRANSACTION}
UNKNOWN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Topic = MetadataResponse.MetadataResponseTopic


async def describe(
    client: ClusterClient, topics: Iterable[str] | None, timeout_s: float, *, operations: bool = False
) -> MetadataResponse:
    """Request metadata and apply its brokers.

    Arguments:
        client: of the cluster.
        topics: names; None = all.
        timeout_s: deadline in seconds.
        operations: the response has the authorized operations of topics.
    """
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(
        topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=operations
    )
    response: MetadataResponse = await client.call_any(request, timeout_s=timeout_s)
    client.use_brokers_of(response)
    return response


async def leaders(
    client: ClusterClient, partitions: Iterable[TopicPartition], timeout_s: float
) -> tuple[dict[TopicPartition, int | KafkaError], dict[str, bytes]]:
    """Return the leader of each partition or its error, and the ids of the topics."""
    wanted = list(partitions)
    response = await describe(client, {each.topic for each in wanted}, timeout_s)
    topics = {topic.name: topic for topic in response.topics if topic.name is not None}
    found = {each: _leader(topics.get(each.topic), each) for each in wanted}
    return found, {name: topic.topic_id for name, topic in topics.items()}


def _leader(topic: Topic | None, wanted: TopicPartition) -> int | KafkaError:
    if topic is None or topic.error_code:
        return error_for(UNKNOWN if topic is None else topic.error_code, None)
    for each in topic.partitions:
        if each.partition_index == wanted.partition:
            return each.leader_id if each.leader_id >= 0 else error_for(KafkaErrorCode.LEADER_NOT_AVAILABLE)
    count = len(topic.partitions)
    return error_for(UNKNOWN, f"{wanted.topic} has partitions 0 to {count - 1}, not {wanted.partition}")


async def coordinators(
    client: ClusterClient, route: Route, keys: Iterable[str], timeout_s: float
) -> dict[str, int | KafkaError]:
    """Return the broker id of each coordinator, or the error."""
    futures: dict[str, asyncio.Future[Any]] = {}
    for key in keys:
        if key not in futures:
            futures[key] = client.loop.create_future()
            client.find_coordinator(key, KEY_TYPES[route], *completing(futures[key]), timeout_s=timeout_s)
    try:
        if futures:
            await asyncio.wait(futures.values())
    finally:  # a cancelled caller receives no error of a lookup
        for future in futures.values():
            future.cancel()
    return {key: _result(future) for key, future in futures.items()}


def _result(future: "asyncio.Future[Any]") -> int | KafkaError:
    error = future.exception()
    if error is None:
        node: int = future.result()
        return node
    if isinstance(error, KafkaError):
        return error
    raise error
