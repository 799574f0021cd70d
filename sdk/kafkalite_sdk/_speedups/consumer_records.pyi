"""The records that a consumer returns. Sizes are bytes, timestamps milliseconds."""

from collections.abc import Callable
from types import GenericAlias
from typing import Generic, Protocol, TypeVar, final

from kafkalite.model import TopicPartition

__all__ = ["CREATE_TIME", "LOG_APPEND_TIME", "NO_TIMESTAMP", "Record", "RecordDecoder", "by_partition"]

NO_TIMESTAMP: int
CREATE_TIME: int
LOG_APPEND_TIME: int

_K = TypeVar("_K", covariant=True)
_V = TypeVar("_V", covariant=True)
_T = TypeVar("_T", covariant=True)
_Headers = tuple[tuple[str, bytes | None], ...]

class _Deserializer(Protocol[_T]):
    def deserialize(self, topic: str, headers: _Headers, data: bytes, /) -> _T: ...

@final
class Record(Generic[_K, _V]):
    """A record of a partition. It keeps its batch in memory, so that key, value and headers are read when asked for.

    Attributes:
        topic, partition, offset: where the record is.
        timestamp_ms: -1 = none.
        timestamp_type: CREATE_TIME (0), LOG_APPEND_TIME (1) or NO_TIMESTAMP (-1).
        leader_epoch: of the leader that appended the record, -1 = unknown.
        key, value: deserialized once; None = null. An exception of the deserializer is raised, with a note that names
            the record.
        headers: names and values.
        raw_key, raw_value: the bytes, without the deserializer.
    """

    @classmethod
    def __class_getitem__(cls, types: object, /) -> GenericAlias: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def key(self) -> _K | None: ...
    @property
    def value(self) -> _V | None: ...
    @property
    def headers(self) -> _Headers: ...
    @property
    def raw_key(self) -> bytes | None: ...
    @property
    def raw_value(self) -> bytes | None: ...

def by_partition(records: list[Record[_K, _V]]) -> dict[TopicPartition, list[Record[_K, _V]]]:
    """Return records by partition, in their order."""

@final
class RecordDecoder(Generic[_K, _V]):
    """How a consumer decodes records.

    Arguments:
        key_deserializer, value_deserializer: a function of the bytes, or an object with the method
            `deserialize(topic, headers, data)`; never called with None. None = the records have bytes.
        read_committed: skip the records of aborted transactions.
        check_crcs: compare the checksums of batches.
        decompressed_max: largest size of a decompressed batch.
        offload_bytes: `take` waits for `decompress` at compressed batches of this size or more; 0 = never.
    """

    def __new__(
        cls,
        *,
        key_deserializer: Callable[[bytes], _K] | _Deserializer[_K] | None = None,
        value_deserializer: Callable[[bytes], _V] | _Deserializer[_V] | None = None,
        read_committed: bool = False,
        check_crcs: bool = True,
        decompressed_max: int = 134217728,
        offload_bytes: int = 0,
    ) -> RecordDecoder[_K, _V]: ...
    @classmethod
    def __class_getitem__(cls, types: object, /) -> GenericAlias: ...
