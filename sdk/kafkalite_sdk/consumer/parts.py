"""The parts of a consumer, and how they refer to each other."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.driver import Driver
from kafkalite_sdk.consumer.fetch.decompression import OFFLOAD_BYTES
from kafkalite_sdk.consumer.fetch.fetcher import Fetcher
from kafkalite_sdk.consumer.offsets.positions import Positions
from kafkalite_sdk.consumer.poison import PoisonPolicy, new_check
from kafkalite_sdk.consumer.poll_loop import PollLoop
from kafkalite_sdk.consumer.queries import Queries
from kafkalite_sdk.consumer.settings import ConsumerSettings, check_deserializer
from kafkalite_sdk.consumer.subscriptions import Subscriptions

if TYPE_CHECKING:
    from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", covariant=True)

Headers = tuple[tuple[str, bytes | None], ...]


class Deserializer(Protocol[T]):
    """Turns the bytes of keys or values into objects."""

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T:
        """Return the object. Null keys and values are not passed."""


Deserializers = tuple[Callable[[bytes], K] | Deserializer[K] | None, Callable[[bytes], V] | Deserializer[V] | None]


class ConsumerParts(NamedTuple, Generic[K, V]):
    """The parts of a consumer."""

    driver: Driver[K, V]
    queries: Queries
    loop: PollLoop[K, V]
    subscriptions: Subscriptions


def new_parts(
    settings: ConsumerSettings,
    environment: Environment | None,
    deserializers: Deserializers[K, V],
    interceptors: "Sequence[ConsumerInterceptor]",
    on_poison: PoisonPolicy | None,
    *,
    check_crcs: bool,
) -> ConsumerParts[K, V]:
    """Create the parts of a consumer.

    Arguments:
        settings: of the consumer.
        environment, interceptors, on_poison: as in `Consumer`.
        deserializers: of keys and values.
        check_crcs: whether the checksums of batches are compared.

    Raises: TypeError for a deserializer that cannot be called.
    """
    check_deserializer(deserializers[0], "key_deserializer")
    check_deserializer(deserializers[1], "value_deserializer")
    client = ClusterClient(settings.client, environment, name="Consumer")
    positions = Positions(settings.policy)
    decoder: RecordDecoder[K, V] = RecordDecoder(
        key_deserializer=deserializers[0],
        value_deserializer=deserializers[1],
        read_committed=bool(settings.isolation_level),
        check_crcs=check_crcs,
        offload_bytes=OFFLOAD_BYTES,
    )
    driver: Driver[K, V] = Driver(settings, client, positions, Fetcher(settings.fetch, decoder, positions, client.view))
    check = new_check(driver, interceptors, on_poison, deserializers)
    auto_commit = changes = None
    if driver.group is not None:
        from kafkalite_sdk.consumer.assignment_changes import AssignmentChanges
        from kafkalite_sdk.consumer.offsets.auto_commit import AutoCommit

        if settings.auto_commit_interval_s is not None:
            auto_commit = AutoCommit(driver, driver.group, settings.auto_commit_interval_s)
        changes = AssignmentChanges(driver, driver.group, auto_commit)
    loop = PollLoop(driver, changes, auto_commit, check)
    return ConsumerParts(driver, Queries(driver), loop, Subscriptions(driver, loop, changes, auto_commit))
