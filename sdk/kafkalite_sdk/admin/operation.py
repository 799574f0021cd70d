"""One call of the administration: how its request is built for some resources, and how a response is read.

Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from kafkalite.errors import KafkaError, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.routes import ROUTES, Row

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Address = TopicPartition | str | int | None
"""Of a resource: its partition for Route.LEADER, group or transactional id for a coordinator, or a broker id."""


NOT_SENT = -(2**31)


class OpenEnum(IntEnum):
    """An enumeration with a member UNKNOWN, which stands for every number of a newer broker."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls["UNKNOWN"] if isinstance(value, int) else None


def is_address(key: Any) -> Address:
    """Return the key itself: it is the address of its resource."""
    address: Address = key
    return address


def no_address(_: Any) -> Address:
    """Return None: any broker, or the controller, serves every resource."""
    return None


class Operation(NamedTuple, Generic[K, V]):
    """An operation on resources with keys of type K and results of type V.

    Attributes:
        request: the class of the request; `ROUTES` has its route.
        build: builds the request for some keys.
        read: yields the result or the error of each key in a response to some keys; raises KafkaError as that of all.
        address: of a key; an int is a broker id on every route.
        single: a request has one key.
        version_max: the highest version to use; None = any.
    """

    request: type[Request]
    build: Callable[[list[K]], Request]
    read: Callable[[Any, list[K]], Iterable[tuple[K, V | KafkaError]]]
    address: Callable[[K], Address] = no_address
    single: bool = False
    version_max: int | None = None

    @property
    def row(self) -> Row:
        """The row of the request in `ROUTES`."""
        return ROUTES[self.request.api_key]


def check_result(error_code: int, message: str | None, value: V) -> V | KafkaError:
    """Return the error of a code, or the value if the code is 0."""
    return error_for(error_code, message) if error_code else value


def check_topic_result(error_code: int, message: str | None, topic: str, value: V) -> V | KafkaError:
    """Return the error of a code, whose text names the topic, or the value if the code is 0."""
    if not error_code:
        return value
    reason = message or error_for(error_code).code.message
    return error_for(error_code, reason if topic in reason else f"{topic}: {reason}")


def operations_of(bits: int) -> frozenset[int] | None:
    """Return the authorized operations of a bit field, None if the broker has not sent them."""
    return None if bits == NOT_SENT else frozenset(number for number in range(32) if bits >> number & 1)


def require(error_code: int, message: str | None = None) -> None:
    """Raise the error of a code, unless it is 0."""
    if error_code:
        raise error_for(error_code, message)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def topics_of(
    partitions: Iterable[TopicPartition], topic: Callable[..., T], partition: Callable[[TopicPartition], object]
) -> list[T]:
    """Return the topics of a request about partitions.

    Arguments:
        partitions: of the request.
        topic: creates a topic of the message, from `name` and `partitions`.
        partition: creates a partition of the message.
    """
    return [
        topic(name=name, partitions=[partition(TopicPartition(name, number)) for number in numbers])
        for name, numbers in by_topic(partitions).items()
    ]


def results_by_partition(
    topics: Iterable[Any], result: Callable[[Any], V]
) -> Iterator[tuple[TopicPartition, V | KafkaError]]:
    """Yield the result or the error of each partition of a response.

    Arguments:
        topics: of the response, with `name` and `partitions`.
        result: of a partition of the response without an error.
    """
    for topic in topics:
        for each in topic.partitions:
            code, message = each.error_code, getattr(each, "error_message", None)
            yield TopicPartition(topic.name, each.partition_index), error_for(code, message) if code else result(each)


def no_result(_: Any) -> None:
    """Return None: a partition has an error, or none."""
