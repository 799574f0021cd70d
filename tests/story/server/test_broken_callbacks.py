"""Tests exceptions in callbacks of a request whose handler has returned: the request still ends exactly once.

The exception is planted in what the callback of each kind calls. The response has UNKNOWN_SERVER_ERROR where it has a
field for it, else the connection is closed; producers get codes that they repeat. One traceback is logged, however
often it happens.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.metadata import store as metadata_store
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.schema import Request
from kafkalite.server.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    init_producer_id,
    metadata,
    produce,
)
from kafkalite.server.requests import config_changes, offset_lookup, pending_fetch
from tests.kit.server import (
    GZIP,
    NOW_MS,
    Client,
    Hub,
    Wire,
    batch,
    compressible,
    connected,
    fetch_request,
    produce_request,
    running,
    stopped_time,
)

UNKNOWN = KafkaErrorCode.UNKNOWN_SERVER_ERROR
NOT_APPENDED = KafkaErrorCode.KAFKA_STORAGE_ERROR
LOADING = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Bug(Exception):
    """What is planted."""


def broken(*_args: Any, **_named: Any) -> Any:
    raise Bug


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A broker with a journal: what coordination answers comes by a callback."""
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        yield client


@pytest.fixture
def tracebacks(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    caplog.set_level(logging.ERROR)
    return lambda: sum(record.exc_info is not None for record in caplog.records)


def delayed_fetch(version: int) -> tuple[FetchRequest, int]:
    return fetch_request("t", (0, 0), min_bytes=1, max_wait_ms=1000), version


@pytest.mark.parametrize("woken_by", ["append", "timer"])
async def test_exception_in_delayed_fetch_ends_only_its_request(
    client: Client,
    hub: Hub,
    woken_by: str,
    monkeypatch: pytest.MonkeyPatch,
    tracebacks: Callable[[], int],
) -> None:
    clock = stopped_time(client.broker)
    received, mute, other = Wire(hub), Wire(hub), Wire(hub)
    received.send(delayed_fetch(12), delayed_fetch(12))
    mute.send(delayed_fetch(6))  # has no place for an error of the whole request
    monkeypatch.setattr(pending_fetch.PendingFetch, "_read_all", broken)
    if woken_by == "timer":
        clock.advance(1000)
    else:
        other.send((produce_request("t", (0, batch(b"v"))), 12))
        assert (await other.answer()).responses[0].partition_responses[0].error_code == 0
    assert [(await received.answer()).error_code for _ in range(2)] == [UNKNOWN, UNKNOWN]
    hub.pump()
    assert mute.closed and not received.closed
    assert tracebacks() == 1


async def test_exception_after_validation_job_ends_only_its_append(
    client: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    await client.produce("t", batch(b"first"))
    wire = Wire(hub)
    monkeypatch.setattr(Partition, "_append_validated", broken)
    for _ in range(2):
        wire.send((produce_request("t", (0, compressible(300_000, GZIP))), 12))
        assert (await wire.answer()).responses[0].partition_responses[0].error_code == NOT_APPENDED
    assert tracebacks() == 1


async def test_exception_in_produce_response_ends_only_its_request(
    client: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    await client.produce("t", batch(b"first"))
    wires = [Wire(hub), Wire(hub)]
    monkeypatch.setattr(produce, "outcome", broken)
    for wire in wires:  # no version of Produce can say it
        wire.send((produce_request("t", (0, compressible(300_000, GZIP))), 12))
        async with asyncio.timeout(60):
            while not wire.closed:
                hub.passed.clear()
                await hub.passed.wait()
    assert tracebacks() == 1


async def test_exception_while_opening_a_log_ends_only_its_append(
    client: Client, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    monkeypatch.setattr(client.broker.logs, "add", broken)
    assert [(await client.produce("t", batch(b"v"))).error_code for _ in range(2)] == [NOT_APPENDED, NOT_APPENDED]
    assert tracebacks() == 1


async def test_exception_after_offset_lookup_job_ends_only_its_request(
    client: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    await client.produce("t", compressible(100_000, GZIP))
    asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])])
    monkeypatch.setattr(offset_lookup, "fill_in", broken)
    for _ in range(2):
        async with connected(client.broker) as peer:
            with pytest.raises(KafkaConnectionError):
                await peer.call(request)
    assert tracebacks() == 1


CONFIGS = AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")
SINGLE = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")
BROKER_CONFIGS = AlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1")
NEW = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
MORE = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)
GONE = DeleteTopicsRequest.DeleteTopicState(name="t")

# The request, and what of its last step is broken: (owner, name).
LAST_STEPS: dict[str, tuple[Request, Any, str]] = {
    "create": (CreateTopicsRequest(topics=[NEW]), create_topics, "describe_created"),
    "grow": (CreatePartitionsRequest(topics=[MORE]), create_partitions, "Result"),
    "delete": (DeleteTopicsRequest(topics=[GONE]), delete_topics, "result"),
    "alter": (AlterConfigsRequest(resources=[CONFIGS]), config_changes, "zip"),
    "alter incrementally": (IncrementalAlterConfigsRequest(resources=[SINGLE]), config_changes, "zip"),
    "metadata": (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")]), metadata, "answer"),
    "producer id": (InitProducerIdRequest(transactional_id=None), init_producer_id, "InitProducerIdResponse"),
}


@pytest.mark.parametrize("kind", LAST_STEPS)
async def test_exception_after_metadata_change_ends_only_its_request(
    client: Client, kind: str, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    request, owner, name = LAST_STEPS[kind]
    monkeypatch.setattr(owner, name, broken, raising=False)
    async with connected(client.broker) as peer:
        if kind in ("metadata", "producer id"):
            assert (await peer.call(request)).error_code == (UNKNOWN if kind == "metadata" else LOADING)
        else:
            with pytest.raises(KafkaConnectionError):
                await peer.call(request)
    assert tracebacks() == 1
    monkeypatch.undo()
    assert (await client.create("later"))[0].error_code == 0


@pytest.mark.parametrize("step", ["topic_changed", "topic_gone", "configure", "producer ids"])
async def test_durable_change_that_cannot_be_applied_fails_and_later_changes_run(
    client: Client, step: str, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    """Each fails with its own error; the next change of the same object runs."""
    broker = client.broker
    if step == "topic_changed":
        monkeypatch.setattr(broker.hosting, "apply", broken)
        assert [(await client.create("new"))[0].error_code for _ in range(2)] == [UNKNOWN, 36]
    elif step == "topic_gone":
        monkeypatch.setattr(broker.hosting, "drop", broken)
        assert (await client.delete("t"))[0].error_code == UNKNOWN
        assert (await client.delete("t"))[0].error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif step == "configure":
        monkeypatch.setattr(broker.listening, "configure", broken)
        for _ in range(2):
            answer = await client.call(AlterConfigsRequest(resources=[BROKER_CONFIGS]))
            assert answer.responses[0].error_code == UNKNOWN
    else:
        monkeypatch.setattr(metadata_store.znodes, "decode_producer_ids", broken)
        answer = await client.call(InitProducerIdRequest(transactional_id=None))
        assert answer.error_code == KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert tracebacks() == 1


async def test_response_that_cannot_be_encoded_closes_the_connection(
    client: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch, tracebacks: Callable[[], int]
) -> None:
    clock = stopped_time(client.broker)
    late, now = Wire(hub), Wire(hub)
    late.send(delayed_fetch(12))
    original = pending_fetch.FetchResponse
    monkeypatch.setattr(pending_fetch, "FetchResponse", lambda **named: original(**{**named, "session_id": 1 << 40}))
    now.send((fetch_request("t", (0, 0), min_bytes=0, max_wait_ms=0), 12))
    clock.advance(1000)
    hub.pump()
    assert late.closed and now.closed
    assert tracebacks() == 1
