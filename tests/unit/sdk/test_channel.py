"""A channel whose connections are those of the test."""

import asyncio
import random
from typing import Any

from kafkalite_sdk.client.channel import Channel, Submission

from kafkalite.backoff import Backoff
from kafkalite.errors import KafkaConnectionError, KafkaError
from kafkalite.protocol.messages.metadata import MetadataRequest

RESET = KafkaConnectionError("Connection reset by peer")


class ResetConnection:
    """Is reset in the loop iteration in which it has connected, before the channel learns of it."""

    responses = 1
    open_calls = 0
    closed = True
    failure: KafkaError | None = None

    async def connect(self) -> None:
        self.failure = RESET


async def test_requests_fail_when_the_connection_ends_before_the_channel_learns_of_it() -> None:
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[KafkaError] = loop.create_future()
    unexpected: list[Exception] = []

    def connection(_lost: Any) -> Any:
        return ResetConnection()

    channel = Channel(
        connection, "broker", loop, Backoff(0.1, 1.0, random.Random(1).random), lambda channel: None, unexpected.append
    )
    channel.submit(Submission(MetadataRequest(topics=None), failed.cancel, failed.set_result, loop.time() + 3600))
    assert await asyncio.wait_for(failed, 60) is RESET
    assert (channel.last_error, channel.open_calls, unexpected) == (RESET, 0, [])
    channel.begin_close(KafkaError("closed"))
