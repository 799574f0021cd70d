"""The fast way of committed offsets against the codec that serves all records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite._speedups.groups.offset_commit_record import append_commits, read_commit
from kafkalite.coordinators.group.serde import _encode_offset, _offset
from kafkalite.errors import DecodeError
from kafkalite.model import ZERO_UUID
from kafkalite.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue, read_key, read_value
from kafkalite.protocol.stored.record_types import write
from kafkalite.records import Batch, Builder
from kafkalite.state.groups.records import OffsetCommitted, OffsetDeleted

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
IDS = st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16))
COMMITS = st.builds(
    OffsetCommitted, TEXTS, TEXTS, INT32, INT64, INT32, TEXTS, INT64, st.sampled_from([-1, -1, 0, 77]), IDS
)


def appended(records: list[object], at: int = 0, size_max: int = 1 << 20) -> tuple[int, list[tuple[Any, Any]]]:
    """Where the fast way stopped, and the keys and values that it wrote."""
    builder = Builder(size_max)
    end = append_commits(builder, records, at, 1_000, OffsetCommitted)
    if not len(builder):
        return end, []
    batch = Batch(builder.build())
    assert batch.max_timestamp == 1_000
    return end, [(record.key, record.value) for record in batch]


def common(commit: OffsetCommitted) -> tuple[bytes, bytes | None]:
    return write(*_encode_offset(commit))


@given(st.lists(COMMITS, max_size=5))
def test_fast_path_writes_the_bytes_of_the_codec(commits: list[OffsetCommitted]) -> None:
    end, written = appended(list(commits))
    assert written == [common(commit) for commit in commits[:end]]
    assert end == len(commits) or commits[end].expire_timestamp_ms != -1


@given(COMMITS, st.sampled_from([1, 2, 3, 4]))
def test_fast_path_reads_what_the_codec_reads(commit: OffsetCommitted, version: int) -> None:
    if version != 1:
        commit = commit._replace(expire_timestamp_ms=-1)
    if version < 4:
        commit = commit._replace(topic_id=ZERO_UUID)
    key, value = write(*_encode_offset(commit), version)
    assert value is not None
    read = read_commit(key, value, OffsetCommitted)
    assert type(read) is OffsetCommitted and read == read_commonly(key, value)


def read_commonly(key: bytes, value: bytes) -> OffsetCommitted | None:
    type_id, known = read_key(key)
    return _offset(known, read_value(type_id, value)) if isinstance(known, OffsetCommitKey) else None


@given(COMMITS, st.data())
def test_malformed_records_are_left_to_the_codec(commit: OffsetCommitted, data: st.DataObject) -> None:
    key, value = common(commit)
    assert value is not None
    broken = [bytearray(key), bytearray(value)]
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(broken))
        at = data.draw(st.integers(0, len(part)))
        part[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    read = read_commit(bytes(broken[0]), bytes(broken[1]), OffsetCommitted)
    if read is None:
        return
    try:
        assert read == read_commonly(bytes(broken[0]), bytes(broken[1]))
    except DecodeError:
        pytest.fail(f"the common way refuses what was read as {read}")


def test_append_commits_stops_at_other_records_and_full_batches() -> None:
    commit = OffsetCommitted("g", "t", 0, 5, -1, "", 1)
    assert appended([commit, commit, OffsetDeleted("g", "t", 0), commit])[0] == 2
    assert appended([OffsetDeleted("g", "t", 0), commit], at=1)[0] == 2
    end, written = appended([commit] * 10, size_max=200)
    assert 0 < end < 10 and len(written) == end
    assert appended([commit._replace(metadata="x" * 40_000)]) == (0, [])
    assert appended([commit], at=5)[0] == 5
    with pytest.raises(ValueError, match="no record -1"):
        appended([commit], at=-1)


@pytest.mark.parametrize("field", [{"offset": 2**63}, {"partition": 2**31}, {"topic": 5}, {"metadata": None}])
def test_fields_of_a_wrong_type_are_rejected(field: dict[str, Any]) -> None:
    commit = OffsetCommitted("g", "t", 0, 5, -1, "", 1)._replace(**field)
    with pytest.raises((TypeError, OverflowError)):
        appended([commit])


def test_tombstones_and_old_versions_are_left_to_the_codec() -> None:
    key, value = write(OffsetCommitKey(group="g", topic="t", partition=1), OffsetCommitValue(offset=3), 0)
    assert value is not None and read_commit(key, value, OffsetCommitted) is None
