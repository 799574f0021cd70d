"""Requests that fuzzing found: each once closed a connection, or got a wrong response."""

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.api_versions import ApiVersionsResponse
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.server.broker import Broker
from kafkalite.state.topic_names import complaint
from tests.kit.fuzzing import PATHS
from tests.kit.record_engines import build

LONGEST = "y" * 32_767
SOME_ID = struct.pack(">QQ", 1, 2)
Wanted = MetadataRequest.MetadataRequestTopic


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[ClientConnection]:
    host, port = broker.address.rsplit(":", 1)
    async with ClientConnection(host, int(port)) as connected:
        yield connected


async def test_a_refusal_may_quote_the_longest_name(peer: ClientConnection) -> None:
    topics = [CreatePartitionsRequest.CreatePartitionsTopic(name=LONGEST, count=3)]
    (result,) = (await peer.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000))).results
    assert result.name == LONGEST and result.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_duplicate_names_in_a_request_are_described_once(peer: ClientConnection) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    entry = DescribeConfigsRequest.DescribeConfigsResource
    everything = entry(resource_type=2, resource_name="t", configuration_keys=None)
    one = entry(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    configs = await peer.call(DescribeConfigsRequest(resources=[everything, one] * 1000))
    assert [len(found.configs) == 1 for found in configs.results] == [False, True]
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1] * 1000)
    producers = await peer.call(DescribeProducersRequest(topics=[asked] * 3))
    assert [[each.partition_index for each in found.partitions] for found in producers.topics] == [[0, 1]]


@pytest.mark.parametrize("version", [0, 3, 4, 6])
async def test_every_version_of_find_coordinator_is_answered(peer: ClientConnection, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    answer = await peer.call(request, version_max=version)
    assert len(answer.coordinators) == (version >= 4)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("wanted", [Wanted(name=None), Wanted(name="t", topic_id=SOME_ID)], ids=["null", "id"])
async def test_topics_by_id_before_their_version(peer: ClientConnection, version: int, wanted: Wanted) -> None:
    answer = await peer.call(MetadataRequest(topics=[wanted]), version_max=version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        (wanted.name or "", KafkaErrorCode.INVALID_REQUEST)
    ]


def test_response_without_an_error_field_is_not_sent_after_an_exception() -> None:
    """Metadata has a place for an error of the whole request from v13 on; before, the connection is closed."""
    assert [MetadataResponse.has_error_code(version) for version in (0, 12, 13)] == [False, False, True]
    assert ApiVersionsResponse.has_error_code(0)


async def test_failing_handler_closes_the_connection_when_the_response_has_no_error_field(
    broker: Broker, peer: ClientConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.running, "tables", None)
    answer = await peer.call(MetadataRequest(topics=[]), version_max=13)
    assert answer.error_code == KafkaErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(KafkaConnectionError):
        await peer.call(MetadataRequest(topics=[]), version_max=12)
    monkeypatch.undo()


@pytest.mark.parametrize("name", [name for name in PATHS if complaint(name)], ids=lambda name: repr(name[:20]))
async def test_a_topic_name_that_is_a_path_reaches_no_disk(tmp_path: Path, name: str) -> None:
    """Asked for by creation, by auto-creation, and by a produce: nothing appears, in the directory or outside."""
    async with Broker(str(tmp_path / "data")) as broker:
        host, port = broker.address.rsplit(":", 1)
        before = set(tmp_path.rglob("*"))
        async with ClientConnection(host, int(port)) as peer:
            topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            created = await peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
            assert [result.error_code for result in created.topics] == [KafkaErrorCode.INVALID_TOPIC_EXCEPTION]
            known = await peer.call(MetadataRequest(topics=[Wanted(name=name)]))
            assert [found.error_code for found in known.topics] == [KafkaErrorCode.INVALID_TOPIC_EXCEPTION]
            data = ProduceRequest.TopicProduceData
            part = data.PartitionProduceData(index=0, records=build((1, None, b"x")))
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data(name=name, partition_data=[part])])
            answer = await peer.call(request, version_max=12)
            assert answer.responses[0].partition_responses[0].error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert set(tmp_path.rglob("*")) == before
