"""One awaited send after another without sockets: `pytest perf/micro/test_producer_send.py`.

The transport answers each Produce request in the next loop iteration with the same bytes, so the figures are the CPU
time of the SDK and of the event loop. As a script, it awaits a number of sends, for profilers:
`python -m perf.micro.test_producer_send COUNT`.
"""

import asyncio
import sys
from typing import Any

import pytest
import uvloop
from kafkalite_sdk import Producer
from kafkalite_sdk.client.environment import Environment

from kafkalite._speedups.codec import encode, read_request_header, response_header
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.protocol.schema import Request, Response, response_class

VALUE = bytes(100)
COUNT = 1_000
SERVED: tuple[type[Request], ...] = (ProduceRequest, MetadataRequest, ApiVersionsRequest, InitProducerIdRequest)
Metadata = MetadataResponse.MetadataResponseTopic
Produced = ProduceResponse.TopicProduceResponse


def responses() -> dict[int, Response]:
    """The response of each request, by API key."""
    partition = Metadata.MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    outcome = Produced.PartitionProduceResponse(index=0, base_offset=7, log_start_offset=0)
    return {
        ProduceRequest.api_key: ProduceResponse(responses=[Produced(name="orders", partition_responses=[outcome])]),
        MetadataRequest.api_key: MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="broker", port=9092)],
            topics=[Metadata(name="orders", partitions=[partition])],
        ),
        ApiVersionsRequest.api_key: ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=each.api_key, min_version=each.versions[0], max_version=each.versions[1]
                )
                for each in SERVED
            ]
        ),
        InitProducerIdRequest.api_key: InitProducerIdResponse(producer_id=1, producer_epoch=0),
    }


class Answering(asyncio.Transport):
    """A transport whose peer answers each request in the next loop iteration."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._requests = {each.api_key: each for each in SERVED}
        self._responses = responses()
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._closing = False

    def write(self, data: Any) -> None:
        self._loop.call_soon(self._answer, bytes(data))

    def _answer(self, data: bytes) -> None:
        """Answer the requests of one write."""
        encoded = self._encoded.get((data[5], data[7])) or self._encode(data)
        space = self._protocol.get_buffer(len(encoded))
        space[: len(encoded)] = encoded[:4] + data[8:12] + encoded[8:]  # type: ignore[index]
        self._protocol.buffer_updated(len(encoded))
        size = 4 + int.from_bytes(data[:4], "big")
        if size < len(data):
            self._answer(data[size:])

    def _encode(self, data: bytes) -> bytes:
        header = read_request_header(data[4:])
        key, version = header.api_key, header.api_version
        kind = response_class(self._requests[key])
        body = encode(self._responses[key], version, response_header(kind, version, 0))
        self._encoded[key, version] = len(body).to_bytes(4, "big") + body
        return self._encoded[key, version]

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)


async def dial(protocol: Any, *_: object) -> None:
    connected = protocol()
    connected.connection_made(Answering(connected))


async def send_all(producer: Producer, count: int) -> int:
    offset = 0
    for _ in range(count):
        offset = (await producer.send("orders", VALUE)).offset
    return offset


def started(runner: asyncio.Runner) -> Producer:
    async def start() -> Producer:
        producer = Producer("broker:9092", linger_ms=0, environment=Environment(dial))
        await producer.start()
        await send_all(producer, 1)
        return producer

    return runner.run(start())


@pytest.mark.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_await_each(benchmark, factory):
    benchmark.group = "producer: 1,000 awaited sends, one after another"
    with asyncio.Runner(loop_factory=factory) as runner:
        producer = started(runner)
        assert benchmark(lambda: runner.run(send_all(producer, COUNT))) == 7
        runner.run(producer.close())


def main(count: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        producer = started(runner)
        runner.run(send_all(producer, count))
        runner.run(producer.close())


if __name__ == "__main__":
    main(int(sys.argv[1]))
