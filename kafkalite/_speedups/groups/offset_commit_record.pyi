from typing import TypeVar

from kafkalite._speedups.records.batch_builder import Builder

_Commit = TypeVar("_Commit", bound=tuple[str, str, int, int, int, str, int, int, bytes])

def append_commits(
    builder: Builder,
    records: list[object],
    at: int,
    timestamp: int,
    record_type: type,
    packed_type: type | None = None,
) -> int:
    """Append committed offsets to a batch.

    Arguments:
        builder: of the batch.
        records: records of any types.
        at: index of the first record to append.
        timestamp: of the appended records, in ms.
        record_type: type of one committed offset: a tuple of group, topic, partition, offset, leader epoch, metadata,
            commit time and expiry in ms, topic id.
        packed_type: type of the offsets of one request: a tuple of group, PartitionOffsets, commit time in ms.

    Returns: the index of the first record that was not appended: it has another type, an expiry or an uncommon size, or
        does not fit into the batch.
    Raises: TypeError, OverflowError for fields of another type or range.
    """

def read_commit(key: bytes, value: bytes, record_type: type[_Commit]) -> _Commit | None:
    """Read a committed offset from its stored key and value, versions 1 to 4.

    Arguments:
        key: the stored key.
        value: the stored value.
        record_type: type of the result.

    Returns: None where the codec must decode the record; broken bytes are one such case.
    """
