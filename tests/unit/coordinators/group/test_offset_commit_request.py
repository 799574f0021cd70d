"""Commits in one piece against the common way: what is read, decided, stored, written and answered is the same."""

import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._speedups.codec import decode, encode, response_header
from kafkalite._speedups.groups.offset_commit_request import PackedCommit, read_packed
from kafkalite._speedups.groups.offset_commit_response import encode_response
from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.errors import DecodeError
from kafkalite.model import ZERO_UUID
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.records import Builder
from kafkalite.server.handlers.offset_commit import answer
from kafkalite.server.requests.response_arrays import ResponseArray
from kafkalite.slicing import finish
from kafkalite.state.effects import Effects, Now
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit
from kafkalite.state.groups.records import (
    ClassicGroupMetadata,
    ClassicMemberRecord,
    GroupDefinition,
    GroupGeneration,
    OffsetCommitted,
    OffsetsCommitted,
    PackedOffsets,
    RegisteredMember,
    commits_of,
)
from tests.kit.packed import ELEMENTS_MAX, Partition, Topic, in_one_piece, located, read, wanted, whole, whole_packed
from tests.unit.coordinators.rig import groups
from tests.unit.protocol.values import seed

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)
ASCII = st.text(st.characters(max_codepoint=127), max_size=200)
IDS = st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16))
VERSIONS = st.integers(2, 10)
TOPIC = 7, b"0123456789abcdef"


class PartitionLeader(NamedTuple):
    """A tuple that cannot hold a committed offset."""

    leader: int
    epoch: int


def requests(metadata: st.SearchStrategy[str] = ASCII) -> st.SearchStrategy[OffsetCommitRequest]:
    """Requests of any version: what one has no place for is left at its default by `fitting`."""
    parts = st.builds(
        Partition,
        partition_index=st.integers(0, 2**31 - 2),
        committed_offset=INT64,
        committed_leader_epoch=INT32,
        committed_metadata=st.none() | metadata,
    )
    topics = st.builds(Topic, name=TEXTS, topic_id=IDS, partitions=st.lists(parts, max_size=4))
    return st.builds(
        OffsetCommitRequest,
        group_id=TEXTS,
        generation_id_or_member_epoch=INT32,
        member_id=TEXTS,
        group_instance_id=st.none() | TEXTS,
        topics=st.lists(topics, max_size=3),
    )


def fitting(request: OffsetCommitRequest, version: int) -> OffsetCommitRequest:
    """The request without the fields that this version lacks."""
    if version < 7:
        request.group_instance_id = None
    for topic in request.topics:
        if version >= 10:
            topic.name = ""
        else:
            topic.topic_id = ZERO_UUID
        for part in topic.partitions:
            if version < 6:
                part.committed_leader_epoch = -1
    return request


@given(requests(), VERSIONS)
def test_packed_request_equals_the_decoded_request(request: OffsetCommitRequest, version: int) -> None:
    packed = read(fitting(request, version), version)
    assert packed is not None
    assert whole_packed(packed) == whole(request, version)
    assert len(packed.offsets) == len(wanted(request, version))
    texts = [part.committed_metadata or "" for topic in request.topics for part in topic.partitions]
    assert packed.offsets.metadata_longest == max(map(len, texts), default=0)


@given(requests(TEXTS), VERSIONS, st.data())
def test_malformed_requests_are_left_to_the_codec(
    request: OffsetCommitRequest, version: int, data: st.DataObject
) -> None:
    body = bytearray(encode(fitting(request, version), version))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    packed = read_packed(version, bytes(body), ELEMENTS_MAX)
    if packed is None:
        return
    try:
        decoded = decode(OffsetCommitRequest, version, bytes(body), False)
    except DecodeError as error:
        pytest.fail(f"the codec refuses what was read: {error}")
    found = [part.partition_index for topic in decoded.topics for part in topic.partitions]
    if all(0 <= index < 2**31 - 1 for index in found):
        assert whole_packed(packed) == whole(decoded, version)


@given(requests(), VERSIONS, st.data())
def test_response_has_the_bytes_of_the_codec(request: OffsetCommitRequest, version: int, data: st.DataObject) -> None:
    packed = read(fitting(request, version), version)
    assert packed is not None
    errors = tuple(data.draw(st.sampled_from([0, 0, 3, 22])) for _ in range(len(packed.offsets)))
    header = response_header(OffsetCommitResponse, version, 77)
    elements = partial(ResponseArray, OffsetCommitResponse, version)
    assert encode_response(packed, 77, errors) == header + encode(
        finish(answer(request, {}, iter(errors), elements)), version
    )
    same = iter([25] * len(errors))
    assert encode_response(packed, 77, 25) == header + encode(finish(answer(request, {}, same, elements)), version)


def test_unusual_requests_have_no_fast_path() -> None:
    part = Partition(partition_index=0, committed_offset=1, committed_metadata="")
    usual = OffsetCommitRequest(group_id="g", member_id="", topics=[Topic(name="t", partitions=[part])])
    body = encode(usual, 9)
    assert read_packed(9, body, 2) is not None and read_packed(9, body, 1) is None
    assert read_packed(9, body + b"more", 2) is not None  # librdkafka sends some
    assert read_packed(1, body, 2) is None and read_packed(11, body, 2) is None
    assert read_packed(9, body[:-1] + b"\1\5\0", 2) is None  # a tag
    usual.retention_time_ms = 5
    assert read(usual, 4) is None
    part.committed_metadata = "é"
    assert read(usual, 9) is None


def test_answers_need_the_index_of_their_partition() -> None:
    part = Partition(partition_index=3, committed_offset=1, committed_metadata="")
    packed = read(OffsetCommitRequest(group_id="g", member_id="", topics=[Topic(name="t", partitions=[part])]))
    assert packed is not None
    with pytest.raises(ValueError, match="not located"):
        packed.offsets.partitions(PartitionCommit)
    with pytest.raises(ValueError, match="0 of 1 topics"):
        packed.offsets.located_topics()
    with pytest.raises(ValueError, match="16 bytes"):
        packed.offsets.locate(0, "t", b"", 4)
    with pytest.raises(ValueError, match="not the next"):
        packed.offsets.locate(1, "t", ZERO_UUID, 4)
    assert not packed.offsets.locate(0, "t", ZERO_UUID, 3) and packed.offsets.locate(0, "t", ZERO_UUID, 4)
    with pytest.raises(ValueError, match="not the next"):
        packed.offsets.locate(1, "t", ZERO_UUID, 4)
    with pytest.raises(ValueError, match="no topic 1"):
        packed.offsets.put_into({}, 1, PartitionCommit, 0, ZERO_UUID)
    with pytest.raises(TypeError, match="no tuple"):
        packed.offsets.put_into({}, 0, list, 0, ZERO_UUID)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="PartitionLeader has not 6 fields"):
        packed.offsets.put_into({}, 0, PartitionLeader, 0, ZERO_UUID)
    with pytest.raises(ValueError, match="2 errors for 1"):
        encode_response(packed, 1, (0, 0))
    with pytest.raises(ValueError, match="read_packed"):
        encode_response(PackedCommit(), 1, 0)


TIMES = st.integers(0, 2**62)


@given(requests(), VERSIONS, st.text(max_size=20), TIMES)
def test_packed_records_have_the_bytes_of_the_codec(
    request: OffsetCommitRequest, version: int, group: str, time_ms: int
) -> None:
    packed = read(fitting(request, version), version)
    assert packed is not None
    record = OffsetsCommitted(group, located(packed).offsets, time_ms)
    serde = GroupRecordSerde()
    several = serde.several(record)
    assert several == list(commits_of(record))
    common, fast = Builder(1 << 20), Builder(1 << 20)
    before = OffsetCommitted("before", "t", 0, 1, -1, "", 3)
    assert serde.append_plain(fast, [before, record, before], 0, time_ms + 5) == 3
    for one in (before, *several, before):
        assert common.append(time_ms + 5, *serde.encode(one)) >= 0
    assert fast.build() == common.build()


def test_commit_that_does_not_fit_leaves_the_batch_unchanged() -> None:
    parts = [PartitionCommit("t", index, 5, metadata="x" * 100) for index in range(10)]
    record = OffsetsCommitted("g", _packed(Commit("g", parts)), 9)
    first = OffsetCommitted("before", "t", 0, 1, -1, "", 3)
    builder, alone = Builder(1_000), Builder(1_000)
    assert GroupRecordSerde().append_plain(builder, [first, record], 0, 7) == 1
    assert GroupRecordSerde().append_plain(alone, [first], 0, 7) == 1
    assert builder.build() == alone.build()
    assert GroupRecordSerde().append_plain(Builder(1_000), [record], 0, 7) == 0


def _packed(commit: Commit) -> PackedOffsets:
    packed = in_one_piece(commit).packed
    assert packed is not None
    return packed


def test_packed_offsets_outlive_the_frame_and_share_metadata() -> None:
    body = bytearray(encode(_request(["note", "note", None, ""]), 9))
    packed = read_packed(9, body, ELEMENTS_MAX)
    assert packed is not None
    body[:] = bytes(len(body))  # the frame is written over
    assert located(packed).offsets.partitions(PartitionCommit) == [
        PartitionCommit("t", 0, 5, -1, "note"),
        PartitionCommit("t", 1, 6, -1, "note"),
        PartitionCommit("t", 2, 7),
        PartitionCommit("t", 3, 8, -1, ""),
    ]
    found: dict[int, tuple[Any, ...]] = {}
    packed.offsets.put_into(found, 0, tuple, 10**15, TOPIC[1])
    assert list(found.values()) == [
        (5 + at, -1, metadata, 10**15, -1, TOPIC[1]) for at, metadata in enumerate(["note", "note", "", ""])
    ]
    assert found[0][2] is found[1][2] and found[0][3] is found[3][3]
    assert [hash(each) for each in found.values()] == [hash((*each,)) for each in found.values()]


def _request(metadata: list[str | None]) -> OffsetCommitRequest:
    parts = [
        Partition(partition_index=at, committed_offset=5 + at, committed_metadata=one)
        for at, one in enumerate(metadata)
    ]
    return OffsetCommitRequest(group_id="g", member_id="", topics=[Topic(name="t", partitions=parts)])


NAMES = ("classic", "registered", "simple")
MEMBERS = (
    ClassicGroupMetadata(
        "classic",
        "consumer",
        1,
        "range",
        "m",
        0,
        (ClassicMemberRecord("m", None, "c", "/h", 10_000, 10_000, b"", b""),),
    ),
    GroupDefinition("registered", 10_000, ("t",), None, "uniform", ephemeral=False, first_topics=(("t", 4),)),
    GroupGeneration(
        "registered",
        1,
        0,
        (
            RegisteredMember(
                "m", "c", "/h", 10_000, 10_000, ("t",), 1, 1, frozenset({("t", 0), ("t", 1), ("t", 2), ("u", 1)})
            ),
        ),
    ),
)


def all_loaded(machine: GroupMachine, now: Now) -> Effects:
    effects = Effects()
    for share in machine.start_timers(now):
        effects.extend(share)
    return effects


class Twins:
    """Two shards that get the same commands; commits come to one of them in one piece."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.ms = 0
        self.each, self.packed = groups(), groups()
        for machine in (self.each, self.packed):
            for record in MEMBERS:
                machine.apply(record)
        self.do(all_loaded)

    def do(self, *commands: Callable[[GroupMachine, Now], Effects]) -> list[Effects]:
        """One command for both, or one for each; their effects are the same."""
        now = Now(self.ms, 10**12 + self.ms)
        done = [
            command(machine, now)
            for machine, command in zip((self.each, self.packed), commands * (3 - len(commands)), strict=False)
        ]
        for machine, effects in zip((self.each, self.packed), done, strict=True):
            for record in effects.records:
                machine.apply(record)
        spread = [
            [one for record in effects.records for one in GroupRecordSerde().several(record) or [record]]
            for effects in done
        ]
        assert spread[0] == spread[1]
        assert done[0].answers == done[1].answers and done[0].timers == done[1].timers
        return done

    def commit(self, name: str) -> bool:
        dice = self.dice
        parts = [
            PartitionCommit(
                dice.choice(("t", "u", "u")), dice.randrange(4), dice.randrange(2**40), dice.randrange(-1, 3),
                dice.choice((None, "", "note", "x" * 4_096, "x" * 4_097 if dice.random() < 0.1 else "y")),
                dice.choice((ZERO_UUID, TOPIC[1])),
            )
            for _ in range(dice.randrange(5))
        ]  # fmt: skip
        member = dice.choice(("m", "m", "", "nobody"))
        wanted = Commit(name, parts, member, dice.choice((-1, -1, 0, 1, 1, 2)))
        pieces = in_one_piece(wanted)
        if dice.random() < 0.1:  # pending, to be overtaken
            wanted = pieces = wanted._replace(producer_id=7)
        done = self.do(
            lambda machine, now: machine.offsets.commit(wanted, "token", now),
            lambda machine, now: machine.offsets.commit(pieces, "token", now),
        )
        return any(type(record) is OffsetsCommitted for record in done[1].records)

    def rewind(self, name: str) -> None:
        commits = [PartitionCommit("t", self.dice.randrange(4), self.dice.randrange(50))]
        self.do(lambda machine, now: machine.rewind(name, commits, "rewind", now))

    def same(self) -> None:
        for name in NAMES:
            found = [machine.offsets.fetch(name, None, require_stable=True) for machine in (self.each, self.packed)]
            assert found[0] == found[1]
        assert len(self.each.offsets) == len(self.packed.offsets)


@pytest.mark.parametrize("number", range(20))
def test_packed_commits_change_the_state_like_single_commits(number: int) -> None:
    twins, packed = Twins(random.Random(seed() + number)), 0
    for _ in range(200):
        twins.ms += twins.dice.randrange(500)
        name = twins.dice.choice(NAMES)
        if twins.dice.random() < 0.9:
            packed += twins.commit(name)
        else:
            twins.rewind(name)
        twins.same()
    assert packed


def test_response_without_errors_is_cached() -> None:
    machine = groups()
    done = [
        machine.offsets.commit(in_one_piece(Commit("g", [PartitionCommit("t", 0, 5)])), "token", Now(0, 0))
        for _ in range(2)
    ]
    assert done[0].answers[0].result is done[1].answers[0].result
    assert done[0].answers[0].result == CommitResult(errors=(0,))


def test_commit_above_the_bound_reserves_no_memory() -> None:
    """A commit of 93 MiB once took 272 MiB before its number of partitions was looked at."""
    script = """
import re
from kafkalite._speedups.groups.offset_commit_request import read_packed

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

head = b"\\0\\1g" + b"\\0\\0\\0\\1" + b"\\0\\1m" + b"\\xff\\xff" + b"\\0\\0\\0\\1" + b"\\0\\1t"
partition = bytes(4) + bytes(8) + bytes(4) + b"\\0\\0"
body = bytearray(head + (2_000_000).to_bytes(4, "big") + partition * 2_000_000)
before = peak_kib()
assert read_packed(7, body, 201_000) is None
print(peak_kib() - before)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert int(ended.stdout) < 4 * 1024


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_commit_above_elements_max_is_left_to_the_codec(size: int) -> None:
    """Small ones are read once, large ones are validated before they are copied."""
    text = "x" * min(size, 1_000)
    request = _request([text] * (size // len(text)))
    elements = 1 + len(request.topics[0].partitions)
    body = encode(request, 9)
    packed = read_packed(9, body, elements)
    assert packed is not None and len(packed.offsets) == elements - 1
    assert read_packed(9, body, elements - 1) is None
