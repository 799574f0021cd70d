"""The cluster: brokers, controller, log directories, features."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kafkalite._version import VERSION
from kafkalite.errors import KafkaError, error_for
from kafkalite.model import Node, TopicPartition
from kafkalite.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkalite.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, by_topic, check_result, is_address, operations_of, require
from kafkalite_sdk.admin.outcomes import Outcomes

if TYPE_CHECKING:
    from kafkalite_sdk.admin.coordination import Coordination

SOFTWARE = "kafkalite"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster.

    Attributes:
        cluster_id: its id.
        controller: broker id, None = no broker is the controller. In KRaft mode Kafka reports any broker.
        brokers: sorted by id.
        authorized_operations: operations that this client may use, None = not requested.
    """

    cluster_id: str
    controller: int | None
    brokers: tuple[Node, ...]
    authorized_operations: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a log directory.

    Attributes:
        size: in bytes.
        offset_lag: records that it lacks.
        future: it is being moved into this directory.
    """

    size: int
    offset_lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker.

    Attributes:
        error: why it is offline, None = it is online.
        replicas: by partition.
        total_bytes, usable_bytes: of its file system, -1 = not reported.
    """

    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int
    usable_bytes: int


class Replica(NamedTuple):
    """A replica of a partition on a broker."""

    broker: int
    topic: str
    partition: int


class Upgrade(IntEnum):
    """How the version of a feature may change (KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster (KIP-584).

    Attributes:
        supported: the lowest and highest version that a broker supports, by name.
        finalized: the version level in use, by name.
        epoch: of the finalized versions, -1 = unknown.
    """

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


class Cluster:
    """A cluster and its brokers.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def describe(
        self, *, authorized_operations: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """Describe the cluster.

        Arguments:
            authorized_operations: the operations are included that this client may use.

        Raises:
            KafkaError: it cannot be described.
        """
        request = DescribeClusterRequest(include_cluster_authorized_operations=authorized_operations)
        operation: Operation[None, ClusterDescription] = Operation(
            DescribeClusterRequest, lambda _: request, _described
        )
        return (await self._driver.run(operation, [None], timeout))[None]

    async def log_directories(
        self,
        *brokers: int,
        partitions: Collection[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> Outcomes[int, dict[str, LogDirectory]]:
        """Describe the log directories of brokers, by path.

        Arguments:
            brokers: ids; none = all.
            partitions: only these replicas; None = all.
        """
        topics = None
        if partitions is not None:
            topic = DescribeLogDirsRequest.DescribableLogDirTopic
            topics = [topic(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]
        operation: Operation[int, dict[str, LogDirectory]] = Operation(
            DescribeLogDirsRequest,
            lambda _: DescribeLogDirsRequest(topics=topics),
            _directories,
            is_address,
            single=True,
        )
        left_s = self._driver.countdown(timeout)
        return await self._driver.run(operation, brokers or await self._driver.brokers(left_s()), left_s())

    async def coordination(self, *brokers: int, timeout: float | None = None) -> "Outcomes[int, Coordination]":
        """Describe the sessions of brokers with their coordination service, and the invalid nodes of its tree.

        Served by kafkalite in a cluster; else UnsupportedVersionError.

        Arguments:
            brokers: ids; none = all.
        """
        from kafkalite_sdk.admin.coordination import describe_coordination

        left_s = self._driver.countdown(timeout)
        return await describe_coordination(self._driver, brokers or await self._driver.brokers(left_s()), left_s())

    async def move_replicas(
        self, directories: Mapping[Replica, str], *, timeout: float | None = None
    ) -> Outcomes[Replica, None]:
        """Move replicas to other log directories of their brokers (KIP-113).

        Arguments:
            directories: the path for each replica.
        """
        operation: Operation[Replica, None] = Operation(
            AlterReplicaLogDirsRequest,
            lambda keys: _moves({key: directories[key] for key in keys}),
            _moved,
            lambda key: key.broker,
        )
        return await self._driver.run(operation, directories, timeout)

    async def features(self, *, timeout: float | None = None) -> Features:
        """Return the features that the brokers support, and their versions in use.

        Raises:
            KafkaError: they cannot be read.
        """
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=VERSION)
        operation: Operation[None, Features] = Operation(ApiVersionsRequest, lambda _: request, _features)
        return (await self._driver.run(operation, [None], timeout))[None]

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade: Upgrade = Upgrade.UPGRADE,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[str, None]:
        """Change the versions of features that are in use (KIP-584). The cluster makes all changes or none.

        Arguments:
            levels: the new version of each feature, 0 = the feature is switched off.
            upgrade: UPGRADE, or the kind of downgrade.
            validate_only: the cluster only checks whether it would change them.
        """

        def build(names: list[str]) -> UpdateFeaturesRequest:
            update = UpdateFeaturesRequest.FeatureUpdateKey
            updates = [
                update(
                    feature=name,
                    max_version_level=levels[name],
                    allow_downgrade=upgrade != Upgrade.UPGRADE,
                    upgrade_type=upgrade,
                )
                for name in names
            ]
            return UpdateFeaturesRequest(
                timeout_ms=self._driver.request_timeout_ms, feature_updates=updates, validate_only=validate_only
            )

        operation: Operation[str, None] = Operation(UpdateFeaturesRequest, build, _updated)
        return await self._driver.run(operation, levels, timeout)


def _described(response: DescribeClusterResponse, _: object) -> Iterator[tuple[None, ClusterDescription]]:
    require(response.error_code, response.error_message)
    nodes = (Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers)
    yield (
        None,
        ClusterDescription(
            response.cluster_id,
            response.controller_id if response.controller_id >= 0 else None,
            tuple(sorted(nodes)),
            operations_of(response.cluster_authorized_operations),
        ),
    )


def _directories(
    response: DescribeLogDirsResponse, keys: list[int]
) -> Iterator[tuple[int, dict[str, LogDirectory] | KafkaError]]:
    require(response.error_code)
    directories = {
        each.log_dir: LogDirectory(
            error_for(each.error_code) if each.error_code else None,
            {
                TopicPartition(topic.name, one.partition_index): ReplicaInfo(
                    one.partition_size, one.offset_lag, one.is_future_key
                )
                for topic in each.topics
                for one in topic.partitions
            },
            each.total_bytes,
            each.usable_bytes,
        )
        for each in response.results
    }
    yield keys[0], directories


def _moves(directories: Mapping[Replica, str]) -> AlterReplicaLogDirsRequest:
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    by_path: dict[str, list[TopicPartition]] = {}
    for replica, path in directories.items():
        by_path.setdefault(path, []).append(TopicPartition(replica.topic, replica.partition))
    dirs = [
        directory(
            path=path,
            topics=[
                directory.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                for name, numbers in by_topic(partitions).items()
            ],
        )
        for path, partitions in by_path.items()
    ]
    return AlterReplicaLogDirsRequest(dirs=dirs)


def _moved(response: AlterReplicaLogDirsResponse, keys: list[Replica]) -> Iterator[tuple[Replica, KafkaError | None]]:
    broker = keys[0].broker
    for topic in response.results:
        for each in topic.partitions:
            yield Replica(broker, topic.topic_name, each.partition_index), check_result(each.error_code, None, None)


def _features(response: ApiVersionsResponse, _: object) -> Iterator[tuple[None, Features]]:
    require(response.error_code)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    yield None, Features(supported, finalized, response.finalized_features_epoch)


def _updated(response: UpdateFeaturesResponse, keys: list[str]) -> Iterator[tuple[str, KafkaError | None]]:
    """Version 2 has no result per feature: the cluster changes all or none."""
    require(response.error_code, response.error_message)
    results = {each.feature: check_result(each.error_code, each.error_message, None) for each in response.results}
    for name in keys:
        yield name, results.get(name)
