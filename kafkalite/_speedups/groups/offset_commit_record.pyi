from typing import TypeVar

from kafkalite._speedups.records.batches import Builder

_Commit = TypeVar("_Commit", bound=tuple[str, str, int, int, int, str, int, int, bytes])

def java_hash(text: str) -> int:
    """String.hashCode of Java, over UTF-16 units: a signed 32-bit number, 0 for the one without an absolute value."""

def append_commits(
    builder: Builder, records: list[object], at: int, timestamp: int, kind: type, packed: type | None = None
) -> int:
    """Append committed offsets to a batch.

    Args:
        builder: of the batch.
        records: of any types; those of `kind` are tuples of group, topic, partition, offset, leader epoch, metadata,
            commit time and expiry in ms, topic id.
        at: where to begin.
        timestamp: of the records, in ms.
        kind: the type of a commit.
        packed: the type of those that are many: tuples of group, a PackedCommit, commit time in ms.

    Returns: the index of the first record that was not appended: it is no commit, has an expiry or an unusual size, or
        does not fit into the batch.
    Raises: TypeError, OverflowError for fields that are not what they must be.
    """

def read_commit(key: bytes, value: bytes, kind: type[_Commit]) -> _Commit | None:
    """The commit of a stored key and value of versions 1 to 4; None for all that is not just as it is usually written,
    broken bytes among it."""
