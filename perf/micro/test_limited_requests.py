"""Requests of a broker without quotas, with one of another user, and with one that the client does not exceed, without
sockets: `pytest perf/micro/test_limited_requests.py`.

The frames are encoded once. Each cycle is one request, from its bytes to the bytes of its response.
"""

from typing import Any

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite.cluster.configs.client_quotas import QuotaEntity
from kafkalite.model import Principal
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.schema import Request
from tests.kit.server import Hub, Wire, batch, fetch_request, produce_request, running

ALICE = Principal("User", "alice")
RECORDS = batch(*[bytes(100)] * 10)
LIMIT = 1e12
REQUESTS: dict[str, tuple[Request, int]] = {
    "produce": (produce_request("t", (0, RECORDS)), 12),
    "fetch-empty": (fetch_request("t", (0, 1)), 12),
    "metadata": (MetadataRequest(topics=[]), 9),
}


@pytest.mark.parametrize("limited", ["", "bob", "alice"], ids=["no-quota", "other-user", "same-user"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_request(benchmark: Any, name: str, limited: str) -> None:
    benchmark.group = f"limited {name}"
    async with running() as client:
        await client.create("t")
        await client.produce("t", batch(b"value"))
        if limited:
            quotas = dict.fromkeys(("producer_byte_rate", "consumer_byte_rate", "request_percentage"), LIMIT)
            client.broker.quotas.replace(QuotaEntity((("user", limited),)), quotas)
        hub = Hub(client.broker)
        request, version = REQUESTS[name]
        wire = Wire(hub, principal=ALICE)
        wire.send((request, version))
        assert await wire.answer()
        frame = encode_request(request, version, 1, "wire")
        frame = len(frame).to_bytes(4, "big") + frame
        client_side = hub.connect()
        client_side.connection.principal = ALICE

        def cycle() -> None:
            client_side.send(frame)
            assert client_side.take_received()

        benchmark(cycle)
