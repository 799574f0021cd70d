"""A commit of ten partitions between the bytes of the request and those of the answer, each step in one piece and
partition by partition: `pytest perf/micro/test_commits.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite._speedups.codec import decode, encode, encode_parts, response_header
from kafkalite._speedups.groups.offset_commit_request import PackedCommit
from kafkalite._speedups.groups.offset_commit_response import encode_response
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.records import Builder
from kafkalite.server.handlers.offset_commit import answer, decode_request
from kafkalite.server.requests.response_arrays import ResponseArray
from kafkalite.slicing import finish
from kafkalite.state.effects import Now
from kafkalite.state.groups.offsets.manager import Commit, PartitionCommit
from tests.kit.packed import VERSION, Partition, Topic
from tests.unit.coordinators.rig import groups

TOPIC_ID = b"0123456789abcdef"
NOW = Now(1_000, 1_700_000_000_000)
PARTS = [Partition(partition_index=at, committed_offset=1_000 + at, committed_metadata="") for at in range(10)]
REQUEST = OffsetCommitRequest(group_id="group-00000", member_id="", topics=[Topic(name="offsets", partitions=PARTS)])
BODY = memoryview(encode(REQUEST, VERSION))
EACH = Commit("group-00000", [PartitionCommit("offsets", at, 1_000 + at, -1, "", TOPIC_ID) for at in range(10)])


def piece() -> PackedCommit:
    packed = decode_request(OffsetCommitRequest, VERSION, BODY, False, 1_000)
    assert isinstance(packed, PackedCommit) and packed.offsets.locate(0, "offsets", TOPIC_ID, 10)
    return packed


WANTED = {"packed": Commit("group-00000", packed=piece().offsets), "each": EACH}


@pytest.mark.parametrize("read", [decode_request, decode], ids=["packed", "each"])
def test_read(benchmark: Any, read: Callable[..., Any]) -> None:
    benchmark(read, OffsetCommitRequest, VERSION, BODY, False, 1_000)


@pytest.mark.parametrize("way", WANTED)
def test_decide(benchmark: Any, way: str) -> None:
    machine = groups()
    assert benchmark(machine.offsets.commit, WANTED[way], None, NOW).records


@pytest.mark.parametrize("way", WANTED)
def test_apply(benchmark: Any, way: str) -> None:
    machine = groups()
    records = machine.offsets.commit(WANTED[way], None, NOW).records

    def apply() -> None:
        for record in records:
            machine.apply(record)

    benchmark(apply)
    assert len(machine.offsets) == 10


@pytest.mark.parametrize("way", WANTED)
def test_batch(benchmark: Any, way: str) -> None:
    serde, records = GroupRecordSerde(), groups().offsets.commit(WANTED[way], None, NOW).records

    def batch() -> bytes:
        builder = Builder(1 << 20)
        assert serde.append_plain(builder, records, 0, NOW.wall_ms) == len(records)
        return builder.build()

    assert len(benchmark(batch)) > 500


def test_answer_packed(benchmark: Any) -> None:
    assert benchmark(encode_response, piece(), 7, (0,) * 10)


def test_answer_each(benchmark: Any) -> None:
    def encoded() -> object:
        header = response_header(OffsetCommitResponse, VERSION, 7)
        elements = partial(ResponseArray, OffsetCommitResponse, VERSION)
        return encode_parts(finish(answer(REQUEST, {}, iter((0,) * 10), elements)), VERSION, header)

    assert benchmark(encoded)
