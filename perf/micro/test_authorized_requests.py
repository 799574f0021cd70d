"""Produce and Fetch of a broker without an authorizer, and of one with 10,000 ACLs, without sockets:
`pytest perf/micro/test_authorized_requests.py`.

The frames are encoded once. Each cycle is one request of one partition, from its bytes to the bytes of its response.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite.model import Principal
from kafkalite.protocol.schema import Request
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.server.security.authorization import AuditedAuthorizer
from kafkalite.state.authorizer.acls import (
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from kafkalite.state.authorizer.standard import StandardAuthorizer
from tests.kit.server import Hub, Wire, batch, fetch_request, produce_request, running

ALICE = Principal("User", "alice")
PATTERNS = 5_000
RECORDS = batch(*[bytes(100)] * 10)


def acls() -> Iterator[AclBinding]:
    """10,000 ACLs: two of each of 5,000 topics, among them those of the benchmark."""
    for name in ["t", *(f"topic-{at}" for at in range(PATTERNS - 1))]:
        pattern = ResourcePattern(AclResourceType.TOPIC, name, PatternType.LITERAL)
        for operation in (AclOperation.READ, AclOperation.WRITE):
            yield AclBinding(pattern, Acl("User:alice", "*", operation, PermissionType.ALLOW))


def authorize(broker: RunningBroker) -> None:
    authorizer = StandardAuthorizer()
    by_pattern: dict[ResourcePattern, list[Acl]] = {}
    for pattern, acl in acls():
        by_pattern.setdefault(pattern, []).append(acl)
    for pattern, of_pattern in by_pattern.items():
        authorizer.replace(pattern, of_pattern)
    assert authorizer.count == 2 * PATTERNS
    broker.authorizer = AuditedAuthorizer(authorizer, broker.clock)


REQUESTS: dict[str, tuple[Request, int]] = {
    "produce": (produce_request("t", (0, RECORDS)), 12),
    "fetch": (fetch_request("t", (0, 0), partition_max_bytes=1 << 16), 12),
    "fetch-empty": (fetch_request("t", (0, 1)), 12),
}


@pytest.mark.parametrize("count", [0, 2 * PATTERNS], ids=["no-authorizer", "10000-acls"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_request(benchmark: Any, name: str, count: int) -> None:
    benchmark.group = f"authorized {name}"
    async with running() as client:
        await client.create("t")
        await client.create("u")
        await client.produce("t", batch(b"value") if name == "fetch-empty" else batch(*[bytes(100)] * 500))
        if count:
            authorize(client.broker)
        hub = Hub(client.broker)
        request, version = REQUESTS[name]
        wire = Wire(hub, principal=ALICE)
        frame = encode_request(request, version, 1, "wire")
        frame = len(frame).to_bytes(4, "big") + frame
        wire.send((request, version))
        answer = await wire.answer()
        assert "error_code=0" in repr(answer.responses[0]), answer
        client_side = hub.connect()
        client_side.connection.principal = ALICE

        def cycle() -> None:
            client_side.send(frame)
            assert client_side.take_received()

        benchmark(cycle)
