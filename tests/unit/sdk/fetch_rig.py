"""A fetcher with a clock, leaders and responses that the test controls."""

from typing import Any

from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.consumer.fetch.fetch_node import FetchCall
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.fetch.fetcher import Fetcher
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST, ResetPolicy
from kafkalite_sdk.consumer.offsets.positions import Positions

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.protocol.messages.metadata import MetadataResponse

Code = KafkaErrorCode
Topic = MetadataResponse.MetadataResponseTopic
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
ORDERS = bytes(15) + b"\1"
NAMES = [TopicPartition("orders", number) for number in range(3)]


class Rig:
    """A fetcher with a clock and brokers that the test controls.

    Arguments:
        leaders: broker id by partition of the topic.
        policy: of offset resets.
        decoder: options of the decoder.
        settings: of the fetcher.
    """

    def __init__(
        self, *leaders: int, policy: ResetPolicy | None = EARLIEST, decoder: Any = None, **settings: Any
    ) -> None:
        self.now = 100.0
        self.view = ClusterView()
        self.positions = Positions(policy)
        self.fetcher: Fetcher[bytes, bytes] = Fetcher(
            FetchSettings(**settings), RecordDecoder(**(decoder or {})), self.positions, self.view
        )
        self.session_id = 0
        self.metadata(*leaders)
        self.positions.assign([TopicPartition("orders", number) for number in range(len(leaders))])
        for state in self.positions.states.values():
            self.positions.seek(state, 0)

    def metadata(self, *leaders: int, epoch: int = 1) -> None:
        partitions = [
            Topic.MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[], isr_nodes=[]
            )
            for number, leader in enumerate(leaders)
        ]
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=each, host="h", port=each) for each in (1, 2, 3)]
        topic = Topic(name="orders", topic_id=ORDERS, partitions=partitions)
        self.view.update(MetadataResponse(brokers=brokers, topics=[topic]))
        self.fetcher.metadata_changed()

    def state(self, number: int = 0) -> Any:
        return self.positions.states[TopicPartition("orders", number)]

    def requests(self, *, usable: bool = True) -> list[FetchCall]:
        return list(self.fetcher.requests(self.now, lambda _: usable))

    def request(self) -> FetchCall:
        (call,) = self.requests()
        return call

    def answer(self, call: FetchCall, *data: PartitionData, **fields: Any) -> None:
        response = FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic_id=ORDERS, partitions=list(data))] if data else [],
            **fields,
        )
        self.fetcher.answered(call, response, self.now)

    def take(self, records_max: int = 1000) -> list[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self.fetcher.take(records_max)]


def data(records: bytes = b"", number: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(
        **{
            "partition_index": number,
            "high_watermark": 100,
            "last_stable_offset": 90,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "records": memoryview(records),
            **fields,
        }
    )


def failed(code: int, number: int = 0, **fields: Any) -> PartitionData:
    return data(number=number, error_code=code, **fields)


def partitions(call: FetchCall) -> list[int]:
    return [name.partition for name in call.partitions]


def offset(call: FetchCall, number: int = 0) -> int:
    return call.partitions[NAMES[number]].offset
