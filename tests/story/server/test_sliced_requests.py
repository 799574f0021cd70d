"""Tests requests about many objects: over many loop iterations, with the same responses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.cluster.topics import manager as topics
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.list_segments import ListSegmentsRequest
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.protocol.schema import Request
from kafkalite.server.handlers import describe_topic_partitions, fetch
from kafkalite.server.requests import call as call_module
from kafkalite.server.requests import fetch_context, pending_fetch, response_arrays
from kafkalite.slicing import Steps, group_steps
from tests.kit.server import (
    ANSWER_S,
    NOW_MS,
    Client,
    Hub,
    Wire,
    batch,
    fetch_request,
    fetched,
    produce_request,
    values_of,
)

TOPICS = ("a", "b", "c", "d")
PARTITIONS = 5
TINY_S = 1e-9  # one step per loop iteration


class Iterations:
    """Makes each request run one step per loop iteration, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
        self._patch = monkeypatch
        self._slicer = client.broker.slicer
        self.steps = 0

    def slice_all(self) -> None:
        self._patch.setattr(call_module, "OBJECTS_MAX", -1)
        self._patch.setattr(call_module, "group_steps", self._single)
        self._patch.setattr(response_arrays, "PIECE_STRUCTS", 2)
        self._patch.setattr(describe_topic_partitions, "SORTED_AT_ONCE", 2)
        self._patch.setattr(self._slicer, "_budget_s", TINY_S)

    def slice_fetches(self) -> None:
        self._patch.setattr(fetch, "OBJECTS_MAX", -1)
        self._patch.setattr(pending_fetch, "OBJECTS_MAX", -1)
        self._patch.setattr(fetch_context, "PIECE", 1)

    def _single(self, steps: Steps) -> Steps:
        single = group_steps(steps, 1)
        while True:
            try:
                next(single)
            except StopIteration as end:
                return end.value
            self.steps += 1
            yield


@pytest.fixture
async def full(client: Client) -> Client:
    """A client of a broker with topics and records."""
    await client.create(*TOPICS, partitions=PARTITIONS, retention_ms="1000000")
    for topic in TOPICS[:2]:
        for index in range(PARTITIONS):
            await client.produce(topic, batch(b"1", b"2"), partition=index)
    offline = client.broker.replicas.partition("b", b"", 3, by_id=False)
    assert not isinstance(offline, int)
    offline.error = 56
    return client


@pytest.fixture
def iterations(monkeypatch: pytest.MonkeyPatch, full: Client) -> Iterations:
    return Iterations(monkeypatch, full)


def metadata(*names: str) -> MetadataRequest:
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in names] if names else None
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def configs(*keys: str) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=list(keys) or None
        )
        for name in (*TOPICS, "a", "missing")
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def partitions_of(*names: str, limit: int = 7, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def asked(request: type[Any], topic: str, name: str, partition: str, **of_partition: Any) -> Request:
    """A request of many versions' shape: partitions 0 to 6 of some topics, one of which is not there."""
    topic_class = getattr(request, topic)
    named = [
        topic_class(
            **{name: each},
            partitions=[getattr(topic_class, partition)(**{INDEX[request]: at}, **of_partition) for at in range(7)],
        )
        for each in ("a", "c", "missing", "b", "a")
    ]
    more = {"replica_id": -1} if request is not DeleteRecordsRequest else {"timeout_ms": 1000}
    return request(topics=named, **more)


INDEX: dict[type[Request], str] = {
    ListOffsetsRequest: "partition_index",
    DeleteRecordsRequest: "partition_index",
    OffsetForLeaderEpochRequest: "partition",
}
OFFSETS = (ListOffsetsRequest, "ListOffsetsTopic", "name", "ListOffsetsPartition")
EPOCHS = (OffsetForLeaderEpochRequest, "OffsetForLeaderTopic", "topic", "OffsetForLeaderPartition")
DELETION = (DeleteRecordsRequest, "DeleteRecordsTopic", "name", "DeleteRecordsPartition")
PRODUCERS = DescribeProducersRequest.TopicRequest
DIRECTORIES = DescribeLogDirsRequest.DescribableLogDirTopic
SEGMENTS = ListSegmentsRequest.SegmentsTopic
ASKED_SEGMENTS = [SEGMENTS.SegmentsPartition(partition_index=at) for at in (0, 1, 3, 9)]

REQUESTS: list[tuple[Request, int]] = [
    *((metadata(), version) for version in (1, 8, 12)),
    (metadata("d", "a", "missing", "a", "not/valid", "b"), 12),
    (configs(), 4),
    (configs("retention.ms", "nothing", "cleanup.policy", "retention.ms"), 1),
    (partitions_of(), 0),
    (partitions_of(limit=2000), 0),
    (partitions_of("c", "b", "missing", cursor=("b", 4)), 0),
    *((asked(*OFFSETS, timestamp=timestamp), 7) for timestamp in (-1, -2, -3, NOW_MS)),
    (asked(*EPOCHS, current_leader_epoch=0, leader_epoch=0), 4),
    (asked(*DELETION, offset=1), 2),
    (DescribeProducersRequest(topics=[PRODUCERS(name=name, partition_indexes=[0, 1, 9]) for name in "abca"]), 0),
    (ListSegmentsRequest(topics=[SEGMENTS(name=name, partitions=ASKED_SEGMENTS) for name in "abca"]), 0),
    *((FindCoordinatorRequest(key_type=key_type, coordinator_keys=list("gfedcba")), 4) for key_type in (0, 1, 2)),
    (DeleteGroupsRequest(groups_names=list("gfedcbag")), 2),
    (DescribeLogDirsRequest(topics=None), 4),
    (DescribeLogDirsRequest(topics=[DIRECTORIES(topic=name, partitions=[0, 1, 9]) for name in "bac"]), 4),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda value: type(value).__name__)
async def test_sliced_response_equals_the_unsliced_one(
    full: Client, iterations: Iterations, monkeypatch: pytest.MonkeyPatch, request_: Request, version: int
) -> None:
    monkeypatch.setattr(full.broker.logs, "space", lambda path: (2, 1))  # others use the disk, too
    at_once = await full.call(request_, version)
    assert iterations.steps == 0
    iterations.slice_all()
    for _ in range(2):  # also from what the first one kept
        assert await full.call(request_, version) == at_once
    assert iterations.steps > len(TOPICS)


async def test_sliced_changes_of_topics_are_answered_in_order(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    Iterations(monkeypatch, client).slice_all()
    monkeypatch.setattr(topics, "CHANGES_AT_ONCE", 0)
    names = ["a", "b", "a", "not/valid", "c"]
    created = [(found.name, found.error_code, len(found.configs or ())) for found in await client.create(*names)]
    settings = created[-1][2]
    assert settings > 0 and created == [("a", 42, 0), ("b", 0, settings), ("not/valid", 17, 0), ("c", 0, settings)]
    deleted = [(found.name, found.error_code) for found in await client.delete("b", "a", "c", "c")]
    assert deleted == [("b", 0), ("a", 3), ("c", 42)]
    assert set(client.broker.image.topics) == {"c"}


async def test_sliced_config_changes_finish_without_their_connection(
    full: Client, iterations: Iterations, hub: Hub
) -> None:
    iterations.slice_all()
    resource = AlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="retention.ms", value="7")
    resources = [resource(resource_type=2, resource_name=name, configs=[config]) for name in TOPICS]
    wire = Wire(hub)
    wire.send((AlterConfigsRequest(resources=resources, validate_only=False), 2))
    await steps(iterations, 3)
    wire.hang_up()
    async with asyncio.timeout(ANSWER_S):
        while any(topic.configs["retention.ms"] != "7" for topic in full.broker.image.topics.values()):
            await asyncio.sleep(0)


async def steps(iterations: Iterations, count: int) -> None:
    """Wait until the request in progress has made this number of steps."""
    until = iterations.steps + count
    async with asyncio.timeout(ANSWER_S):
        while iterations.steps < until:
            await asyncio.sleep(0)


async def test_sliced_metadata_has_one_cluster_image(full: Client, iterations: Iterations, hub: Hub) -> None:
    before = await full.call(metadata(), 12)
    iterations.slice_all()
    wire = Wire(hub)
    full.broker.descriptions.remove("d")
    wire.send((metadata(), 12))
    await steps(iterations, 3)
    old = full.broker.image.topics["d"]
    for name in ("a", "d"):
        full.broker.topic_gone(name)
    full.broker.topic_changed(replace(old, topic_id=bytes(range(16)), partitions=old.partitions[:2]))
    assert wire.answers() == []
    assert (await wire.answer()).topics == before.topics
    after = {topic.name: len(topic.partitions) for topic in (await full.call(metadata(), 12)).topics}
    assert after == {"b": PARTITIONS, "c": PARTITIONS, "d": 2}


async def test_sliced_request_of_closed_connection_ends(full: Client, iterations: Iterations, hub: Hub) -> None:
    iterations.slice_all()
    wire = Wire(hub)
    wire.send((configs(), 4))
    await steps(iterations, 3)
    wire.hang_up()
    taken = iterations.steps
    await full.call(metadata("a"), 12)
    await full.call(metadata("a"), 12)
    assert iterations.steps <= taken + 2 * (PARTITIONS + 5)


async def test_connection_has_one_sliced_request_at_a_time(full: Client, iterations: Iterations, hub: Hub) -> None:
    """Else the memory of half-built responses grows with the pipeline."""
    wire, other = Wire(hub), Wire(hub)
    iterations.slice_all()
    for each in (wire, other):
        each.send(*[(metadata(*TOPICS), 12)] * 5)
    at_once, answers = set(), []
    async with asyncio.timeout(ANSWER_S):
        while len(answers) < 10:
            at_once.add(len(full.broker.slicer._waiting))
            await asyncio.sleep(0)
            answers += wire.answers() + other.answers()
    assert at_once <= {0, 1, 2} and 2 in at_once
    assert all(answer == answers[0] for answer in answers)


async def test_exception_in_sliced_request_ends_it(
    full: Client, iterations: Iterations, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterations.slice_all()
    wire = Wire(hub)
    wire.send((metadata(), 12))
    await steps(iterations, 3)
    monkeypatch.setattr(full.broker, "nodes", None)  # which the last step calls
    async with asyncio.timeout(ANSWER_S):
        while not wire.closed:
            await asyncio.sleep(0)


async def test_sliced_fetch_equals_the_unsliced_one(full: Client, iterations: Iterations) -> None:
    request = fetch_request("a", *((index, 0) for index in range(7)))
    at_once = await full.call(request, 12)
    iterations.slice_all()
    iterations.slice_fetches()
    assert await full.call(request, 12) == at_once
    assert iterations.steps > 2 * PARTITIONS


async def test_sliced_fetch_session_returns_only_changed_partitions(full: Client, iterations: Iterations) -> None:
    iterations.slice_all()
    iterations.slice_fetches()
    parts = [(index, 2) for index in range(PARTITIONS)]
    opened = await full.call(fetch_request("a", *parts, session_epoch=0), 12)
    news = []
    for epoch in (1, 2, 3):
        answer = await full.call(fetch_request("a", session_id=opened.session_id, session_epoch=epoch), 12)
        news.append([index for _topic, index in fetched(answer)])
        await full.produce("a", batch(b"news"), partition=epoch)
    assert news == [[], [1], [2, 1]]  # one that gave records comes last


async def test_append_during_a_sliced_fetch_is_not_missed(full: Client, iterations: Iterations, hub: Hub) -> None:
    iterations.slice_all()
    iterations.slice_fetches()
    wire = Wire(hub)
    wire.send((fetch_request("a", *((index, 2) for index in range(PARTITIONS)), max_wait_ms=60_000), 12))
    await steps(iterations, PARTITIONS + 3)  # the first partitions are read
    Wire(hub).send((produce_request("a", (0, batch(b"3"))), 12))
    found = fetched(await wire.answer())
    assert values_of(found["a", 0].records) == [b"3"]


async def test_pipelined_fetch_follows_a_sliced_change_of_its_session(
    full: Client, iterations: Iterations, hub: Hub
) -> None:
    parts = [(index, 2) for index in range(PARTITIONS)]
    opened = await full.call(fetch_request("a", *parts, session_epoch=0), 12)
    iterations.slice_all()
    iterations.slice_fetches()
    wire = Wire(hub)
    changed = [(index, 0) for index in range(PARTITIONS)]
    wire.send(
        (fetch_request("a", *changed, session_id=opened.session_id, session_epoch=1), 12),
        (fetch_request("a", session_id=opened.session_id, session_epoch=2), 12),
    )
    first, second = await wire.answer(), await wire.answer()
    assert [first.error_code, second.error_code] == [0, 0]
    assert [index for _topic, index in fetched(first)] == list(range(PARTITIONS))


async def test_session_closed_during_a_sliced_change_is_not_counted(
    full: Client, iterations: Iterations, hub: Hub
) -> None:
    opened = await full.call(fetch_request("a", (0, 2), session_epoch=0), 12)
    iterations.slice_all()
    iterations.slice_fetches()
    wire = Wire(hub)
    grown = [(index, 2) for index in range(1, PARTITIONS)]
    wire.send((fetch_request("a", *grown, session_id=opened.session_id, session_epoch=1), 12))
    await steps(iterations, 2)
    sessions = full.broker.fetch_sessions
    sessions.close(opened.session_id)
    answer = await wire.answer()
    assert answer.error_code == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.memory_bytes == 0
