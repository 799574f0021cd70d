"""Tests commits, fetches and deletions of many offsets: in parts, over many iterations, with the same responses."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.server.handlers import offset_commit, offset_delete, offset_fetch
from kafkalite.server.requests import call as call_module
from kafkalite.server.requests import dispatch, response_arrays
from tests.kit.members import beat_join, codes, commit, fetch, join, offsets_of
from tests.kit.server import Client, Hub, Wire

PARTITIONS = 9
TINY_S = 1e-9  # one step per loop iteration
COMMITS = {at: 10 * at for at in (*range(PARTITIONS), PARTITIONS, -1, 3)}


@pytest.fixture
async def orders(client: Client) -> Client:
    await client.create("orders", "payments", partitions=PARTITIONS)
    return client


def slice_all(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each request decoded, carried out and answered in parts of one or two partitions."""
    monkeypatch.setattr(dispatch, "ELEMENTS_AT_ONCE", 2)
    for module in (call_module, offset_commit, offset_delete):
        monkeypatch.setattr(module, "OBJECTS_MAX", -1)
    monkeypatch.setattr(offset_commit, "COMMITS_AT_ONCE", 2)
    monkeypatch.setattr(offset_delete, "DELETED_AT_ONCE", 2)
    monkeypatch.setattr(offset_fetch, "PARTITIONS_AT_ONCE", 3)
    monkeypatch.setattr(response_arrays, "PIECE_STRUCTS", 2)
    monkeypatch.setattr(client.broker.slicer, "_budget_s", TINY_S)


def named(client: Client, version: int, topic: str = "orders") -> Any:
    return client.topic_id(topic) if version >= 10 else topic


@pytest.mark.parametrize("version", [2, 6, 9, 10])
async def test_sliced_offset_commit_equals_the_unsliced_one(
    orders: Client, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    request = commit("g", named(orders, version), COMMITS)
    at_once = await orders.call(request, version)
    stored = await orders.call(fetch("g"), 9)
    slice_all(orders, monkeypatch)
    assert await orders.call(commit("h", named(orders, version), COMMITS), version) == at_once
    assert offsets_of(await orders.call(fetch("h"), 9)) == offsets_of(stored)


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9, 10])
async def test_sliced_offset_fetch_equals_the_unsliced_one(
    orders: Client, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    for topic in ("orders", "payments"):
        await orders.call(commit("g", topic, COMMITS), 9)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    of_group, of_topic = group.OffsetFetchRequestTopics, OffsetFetchRequest.OffsetFetchRequestTopic
    indexes = [0, 5, 99, *range(PARTITIONS)]
    requests = []
    for asked in (("orders", "missing", "payments"), None):
        topics = asked and [of_topic(name=name, partition_indexes=indexes) for name in asked]
        inside = asked and [
            of_group(
                name=name, topic_id=NOWHERE if name == "missing" else orders.topic_id(name), partition_indexes=indexes
            )
            for name in asked
        ]
        if version < 8:
            requests.append(OffsetFetchRequest(group_id="g", topics=topics or ([] if version < 2 else None)))
        else:
            groups = [group(group_id=name, topics=inside) for name in ("g", "nobody", "g")]
            requests.append(OffsetFetchRequest(groups=groups))
    at_once = [await orders.call(request, version) for request in requests]
    slice_all(orders, monkeypatch)
    assert [await orders.call(request, version) for request in requests] == at_once


NOWHERE = bytes(15) + b"\x07"


async def test_group_error_is_the_error_of_a_sliced_offset_fetch(
    orders: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders.call(commit("g", "orders", COMMITS), 9)
    assert (await orders.call(beat_join("g", "m", "orders"))).error_code == 0
    slice_all(orders, monkeypatch)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None, member_id="other", member_epoch=1)
    (found,) = (await orders.call(OffsetFetchRequest(groups=[group]), 9)).groups
    assert (found.error_code, found.topics) == (Error.UNKNOWN_MEMBER_ID, [])


async def test_sliced_commits_of_a_connection_keep_their_order(
    orders: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_all(orders, monkeypatch)
    wire = Wire(hub)
    for offset in (1, 2):
        wire.send((commit("g", "orders", dict.fromkeys(range(PARTITIONS), offset)), 9))
    assert [set(codes(await wire.answer())), set(codes(await wire.answer()))] == [{0}, {0}]
    assert set(offsets_of(await orders.call(fetch("g"), 9)).values()) == {2}


async def test_rejected_sliced_commit_fails_every_partition(orders: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await orders.call(join("g", topics=("orders",)), 3)
    slice_all(orders, monkeypatch)
    refused = codes(await orders.call(commit("g", "orders", dict.fromkeys(range(PARTITIONS), 1), "nobody", 1), 9))
    assert refused == [Error.UNKNOWN_MEMBER_ID] * PARTITIONS


def deletion(*topic_partitions: tuple[str, int]) -> OffsetDeleteRequest:
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    part = topic.OffsetDeleteRequestPartition
    return OffsetDeleteRequest(
        group_id="g",
        topics=[topic(name=name, partitions=[part(partition_index=at)] * 2) for name, at in topic_partitions],
    )


async def test_sliced_offset_delete_equals_the_unsliced_one(orders: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    request = deletion(*(("orders", at) for at in range(-1, PARTITIONS + 1)), ("payments", 0), ("missing", 0))
    await orders.call(commit("g", "orders", COMMITS), 9)
    at_once = await orders.call(request)
    await orders.call(commit("g", "orders", COMMITS), 9)
    slice_all(orders, monkeypatch)
    assert await orders.call(request) == at_once
    assert offsets_of(await orders.call(fetch("g"), 9)) == {}


async def test_sliced_offset_delete_of_unknown_group_is_rejected(
    orders: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_all(orders, monkeypatch)
    answer = await orders.call(deletion(("orders", 0), ("orders", 1)))
    assert (answer.error_code, answer.topics) == (Error.GROUP_ID_NOT_FOUND, [])
