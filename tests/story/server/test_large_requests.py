"""Requests with many elements are decoded over many loop iterations, and served in the order of their connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.requests import dispatch
from tests.kit.server import (
    ANSWER_S,
    Client,
    Hub,
    Wire,
    batch,
    fetch_request,
    fetched,
    outcomes,
    produce_request,
    values_of,
)

TINY_S = 1e-9  # one step per loop iteration
NAMES = 50


@pytest.fixture
async def large(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of a broker that decodes one element at once."""
    await client.create("a", partitions=3)
    monkeypatch.setattr(dispatch, "ELEMENTS_AT_ONCE", 1)
    monkeypatch.setattr(dispatch, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(client.broker.slicer, "_budget_s", TINY_S)
    return client


def metadata(*names: str) -> tuple[MetadataRequest, int]:
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False), 12


async def iteration() -> None:
    await asyncio.sleep(0)


async def test_large_request_is_answered_after_many_iterations(large: Client, hub: Hub) -> None:
    wire = Wire(hub)
    wire.send(metadata("a", *map(str, range(NAMES))))
    for _ in range(NAMES):
        assert wire.answers() == []
        await iteration()
    answer = await wire.answer()
    assert [topic.name for topic in answer.topics] == ["a", *map(str, range(NAMES))]


async def test_requests_behind_a_large_one_keep_their_order(large: Client, hub: Hub) -> None:
    wire = Wire(hub)
    first, second = batch(b"1"), batch(b"2")
    wire.send(
        (produce_request("a", (0, first), (1, first), (2, first)), 12),
        (produce_request("a", (0, second)), 12),
    )
    answers = [await wire.answer(), await wire.answer()]
    assert [found.base_offset for answer in answers for found in outcomes(answer)] == [0, 0, 0, 1]
    assert await large.read("a") == [b"1", b"2"]


async def test_another_connection_does_not_wait_for_a_large_request(large: Client, hub: Hub) -> None:
    slow, other = Wire(hub), Wire(hub)
    slow.send(metadata(*map(str, range(NAMES))))
    other.send((ApiVersionsRequest(), 0))
    await other.answer()
    assert slow.answers() == []
    await slow.answer()


async def test_large_request_that_does_not_parse_closes_its_connection(large: Client, hub: Hub) -> None:
    wire = Wire(hub)
    body = bytes(10) + (100).to_bytes(4, "big") + b"\x00\x01a" * 100  # MetadataRequest v1 with a name cut short
    frame = bytes.fromhex("0003 0001 00000001 ffff") + (100).to_bytes(4, "big") + body[14:-1]
    wire.send_bytes(len(frame).to_bytes(4, "big") + frame)
    async with asyncio.timeout(ANSWER_S):
        while not wire.closed:
            await iteration()


async def test_decoding_ends_with_its_connection(large: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Any] = []
    monkeypatch.setattr(large.broker.dispatcher, "_decoded", lambda *args: decoded.append(args))
    wire = Wire(hub)
    wire.send(metadata(*map(str, range(NAMES))))
    await iteration()
    wire.hang_up()
    for _ in range(2 * NAMES):
        await iteration()
    assert decoded == []


async def test_large_fetch_is_delayed_like_any_other(large: Client, hub: Hub) -> None:
    wire = Wire(hub)
    wire.send((fetch_request("a", (0, 0), (1, 0), (2, 0), max_wait_ms=60_000), 12))
    for _ in range(NAMES):
        await iteration()
    assert wire.answers() == []
    await large.produce("a", batch(b"1"), partition=1)
    answer = await wire.answer()
    assert values_of(fetched(answer)["a", 1].records) == [b"1"]


async def test_bytes_of_a_large_request_count_until_it_is_decoded(large: Client, hub: Hub) -> None:
    wire = Wire(hub)
    wire.send((fetch_request("a", *((index, 0) for index in range(NAMES)), max_wait_ms=60_000), 12))
    assert hub.memory.held_bytes > NAMES
    for _ in range(4 * NAMES):
        await iteration()
    assert hub.memory.held_bytes == 0
