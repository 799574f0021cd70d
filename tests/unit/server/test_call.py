"""Tests `Call`: delayed responses, and responses that cannot be encoded."""

from typing import cast

import pytest

from kafkalite._speedups.codec import encode_request, read_request_header
from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.errors import EncodeError
from kafkalite.net.memory_transport import MemoryHub
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.server.broker import Broker
from kafkalite.server.requests.call import Call

GOOD = ApiVersionsResponse(error_code=0, api_keys=[])
BAD = ApiVersionsResponse(error_code=1 << 20, api_keys=[])  # an int16 on the wire
NO_BROKER = cast(Broker, None)


class Keeping:
    """A service that keeps every call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def connected(self, _connection: Connection) -> bool:
        return True

    def disconnected(self, _connection: Connection) -> None:
        pass

    def write_pending(self) -> None:
        pass

    def request(self, reply: Reply, frame: memoryview) -> None:
        self.calls.append(Call(NO_BROKER, reply, ApiVersionsResponse, 0, read_request_header(frame)))


def test_response_that_cannot_be_encoded_closes_after_earlier_responses() -> None:
    service = Keeping()
    client = MemoryHub(service).connect()
    for correlation_id in (1, 2, 3):
        frame = encode_request(ApiVersionsRequest(), 0, correlation_id, "test")
        client.send(len(frame).to_bytes(4, "big") + frame)
    first, second, third = service.calls
    with pytest.raises(EncodeError):
        second.answer(BAD)
    assert second.reply.done and not client.connection.closed
    third.answer(GOOD)
    first.answer(GOOD)
    client.hub.pump()
    assert client.take_received() == b"\0\0\0\x0a" + b"\0\0\0\1" + bytes(6)
    assert client.connection.closed and client.connection.reason == "internal error: the answer cannot be encoded"
