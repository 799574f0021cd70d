"""aiokafka's records. Sizes are bytes, timestamps milliseconds."""

from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any, ClassVar, Generic, TypeVar, final

from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record

__all__ = ["ConsumerRecord", "converted", "converted_by_partition"]

_K = TypeVar("_K")
_V = TypeVar("_V")

@final
class ConsumerRecord(Generic[_K, _V]):
    """A record as aiokafka returns it; the attributes are the arguments.

    Arguments:
        topic, partition, offset: where the record is.
        timestamp: of the record; -1 = none.
        timestamp_type: 0 = CreateTime, 1 = LogAppendTime.
        key, value: deserialized.
        checksum: always None.
        serialized_key_size, serialized_value_size: before the deserializers; -1 = null.
        headers: names and values.
    """

    __match_args__: ClassVar[tuple[str, ...]]
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: _K | None
    value: _V | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]]

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: _K | None,
        value: _V | None,
        checksum: int | None,
        serialized_key_size: int,
        serialized_value_size: int,
        headers: Sequence[tuple[str, bytes]],
    ) -> None: ...
    @classmethod
    def __class_getitem__(cls, types: object, /) -> GenericAlias: ...

def converted(
    record: Record[bytes, bytes],
    key_deserializer: Callable[[bytes | None], Any] | None = None,
    value_deserializer: Callable[[bytes | None], Any] | None = None,
) -> ConsumerRecord[Any, Any]:
    """Return a record of the engine as one of aiokafka.

    Arguments:
        record: of a consumer without deserializers.
        key_deserializer, value_deserializer: functions of the bytes, also called with None; None = bytes.

    Raises: what a deserializer raises, with a note that names the record.
    """

def converted_by_partition(
    records: list[Record[bytes, bytes]],
    key_deserializer: Callable[[bytes | None], Any] | None = None,
    value_deserializer: Callable[[bytes | None], Any] | None = None,
) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
    """Return records of the engine as those of aiokafka by partition, in their order.

    A record for which a deserializer raises ends the result, unless it is the first one.

    Arguments:
        records: of a consumer without deserializers; those that are not returned remain in the list.
        key_deserializer, value_deserializer: as of `converted`.

    Raises: as `converted`, for the first record, which the list does not contain any more.
    """
