"""aiokafka's administration: calls that end early."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafkalite_sdk.compat.aiokafka.admin import AIOKafkaAdminClient

from kafkalite.errors import KafkaConnectionError


@pytest.mark.parametrize("end", ["answered", "failed"])
async def test_a_lookup_of_a_coordinator_that_was_cancelled_may_end_later(end: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers="localhost:9092")
    ends: dict[str, Any] = {}

    def find_coordinator(_key: str, _type: int, answer: Any, fail: Any) -> None:
        ends.update(answered=lambda: answer(1), failed=lambda: fail(KafkaConnectionError("gone")))

    loop = asyncio.get_running_loop()
    admin._client = SimpleNamespace(loop=loop, find_coordinator=find_coordinator)  # type: ignore[assignment]
    lookup = asyncio.ensure_future(admin.find_coordinator("g"))
    await asyncio.sleep(0)
    lookup.cancel()
    await asyncio.wait([lookup])
    ends[end]()  # raises nothing
    assert lookup.cancelled()
