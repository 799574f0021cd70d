"""A cluster of broker processes: start, kill, suspend and continue each of them, and wait for what all of them know.

The coordination is a setting: `zookeeper.connect` or `kafkalite.coordination.directory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.checker import Partition, ViolationError
from tests.kit.ports import free_port
from tests.kit.replica_invariants import batches_of_decreasing_epochs, different_replicas
from tests.kit.replica_logs import ReplicaLog, read_log

IDS = (1, 2, 3)
SESSION_MS = 2_000
POLL_S = 0.05
METADATA_VERSION = 12
COORDINATOR_VERSION = 3
CREATE_VERSION = 5
CREATE_MS = 10_000
CONFIG = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
# A repeated request finds the topic of one whose response was lost.
CREATED = (KafkaErrorCode.NONE, KafkaErrorCode.TOPIC_ALREADY_EXISTS)
NOT_YET_CREATED = (KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.REQUEST_TIMED_OUT)
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.num.partitions": "6",
}

REPLICATED = {  # three replicas, of which acks=all needs two
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


class Image(NamedTuple):
    """What a broker knows of its cluster.

    Attributes:
        controller: broker id, -1 = none.
        ports: of the live brokers, by id.
        leaders: broker id of each partition's leader, -1 = none.
        in_sync: broker ids of each partition's in-sync replicas.
    """

    controller: int
    ports: dict[int, int]
    leaders: dict[Partition, int]
    in_sync: dict[Partition, frozenset[int]]


def call(address: str, request: Any, version: int) -> Any:
    """The response of a broker. Raises KafkaConnectionError."""

    async def answered() -> Any:
        host, port = address.rsplit(":", 1)
        async with ClientConnection(host, int(port), timeout_s=30.0) as connection:
            return await connection.call(request, version_max=version)

    return asyncio.run(answered())


def call_or_none(address: str, request: Any, version: int) -> Any:
    """The response of a broker; None while it accepts no connection, as without a session."""
    try:
        return call(address, request, version)
    except KafkaConnectionError:
        return None


def image_of(address: str) -> Image | None:
    """What the broker at this address knows; None while it accepts no connection."""
    found: MetadataResponse | None = call_or_none(address, MetadataRequest(topics=None), METADATA_VERSION)
    if found is None:
        return None
    partitions = {
        (topic.name or "", partition.partition_index): partition
        for topic in found.topics
        for partition in topic.partitions
    }
    leaders = {each: partition.leader_id for each, partition in partitions.items()}
    in_sync = {each: frozenset(partition.isr_nodes) for each, partition in partitions.items()}
    return Image(found.controller_id, {each.node_id: each.port for each in found.brokers}, leaders, in_sync)


class BrokerProcesses:
    """Brokers of one cluster, a context manager; all are killed with its block.

    Arguments:
        directory: for a directory of each broker.
        coordination: the settings that name the coordination service.
        settings: more settings of all brokers.
        ids: of the brokers.

    Attributes:
        brokers: the processes by broker id.
        suspended: ids of brokers between `freeze` and `thaw`.
    """

    def __init__(
        self,
        directory: Path,
        coordination: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        ids: Iterable[int] = IDS,
    ) -> None:
        chosen = {**SETTINGS, **coordination, **(settings or {})}
        self.brokers = {each: Kafkalite(directory / str(each), {**chosen, "broker.id": str(each)}) for each in ids}
        self.suspended: set[int] = set()

    def __enter__(self) -> Self:
        try:
            self.start(*self.brokers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is not None:
            self.print_logs()

    def print_logs(self) -> None:
        """Print the ends of the logs of all brokers."""
        for broker_id, broker in self.brokers.items():
            print(f"the end of the log of broker {broker_id}:\n{broker.said()[-3000:]}")

    def print_batches(self, partitions: Iterable[Partition]) -> None:
        """Print the batches of all replicas: offsets, leader epochs, producers and sequences."""
        for partition in partitions:
            for broker_id, log in self.replica_logs(partition).items():
                print(f"{partition} on broker {broker_id}:", *map(str, log.batches), sep="\n    ")

    def close(self) -> None:
        """Kill all."""
        for broker in self.brokers.values():
            if broker.running():
                broker.kill()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def serving(self) -> list[int]:
        """The ids of the brokers whose processes run and are not suspended."""
        return [each for each, broker in self.brokers.items() if broker.running() and each not in self.suspended]

    def address(self, broker_id: int) -> str:
        """The address of a broker."""
        return self.brokers[broker_id].address

    # Faults.

    def start(self, *broker_ids: int) -> None:
        """Start processes together, and wait until they serve."""
        for each in broker_ids:
            self.brokers[each].launch()
        for each in broker_ids:
            self.brokers[each].wait_ready()

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL, also to a suspended broker."""
        self.brokers[broker_id].kill()
        self.suspended.discard(broker_id)

    def freeze(self, broker_id: int) -> None:
        """Send SIGSTOP."""
        self.brokers[broker_id].freeze()
        self.suspended.add(broker_id)

    def thaw(self, broker_id: int) -> None:
        """Send SIGCONT."""
        self.brokers[broker_id].thaw()
        self.suspended.discard(broker_id)

    def move(self, broker_id: int) -> None:
        """Stop a broker, and start it with its data on another port."""
        self.stop(broker_id)
        self.brokers[broker_id].port = free_port()
        self.start(broker_id)

    # What the brokers do and know.

    def create_topic(self, name: str, partitions: int, factor: int = 1, **configs: str) -> list[Partition]:
        """Create a topic by the controller, whichever broker that is; configs with underscores. Its partitions."""

        def created() -> bool:
            code = self.request_topic(self.agreed().controller, name, partitions, factor, **configs)
            assert code in CREATED or code in NOT_YET_CREATED, code
            return code in CREATED

        wait_until(created, f"topic {name} is created", every=POLL_S)
        return [(name, index) for index in range(partitions)]

    def request_topic(
        self,
        broker_id: int,
        name: str,
        partitions: int,
        factor: int = 1,
        timeout_ms: int = CREATE_MS,
        **configs: str,
    ) -> int:
        """The error code of a CreateTopics request to a broker; NOT_CONTROLLER of one that accepts no connection."""
        settings = [CONFIG(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=settings
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
        response = call_or_none(self.address(broker_id), request, CREATE_VERSION)
        return KafkaErrorCode.NOT_CONTROLLER if response is None else response.topics[0].error_code

    def agreed(self) -> Image:
        """Wait until all serving brokers know the same: only them, one of them as the controller, and a leader for each
        partition that they can lead."""
        found: list[Image | None] = []

        def agree() -> bool:
            found[:] = [image_of(self.address(each)) for each in self.serving]
            return all(image is not None and image == found[0] and self._complete(image) for image in found)

        wait_until(agree, f"brokers {self.serving} agree", every=POLL_S)
        assert found[0] is not None
        return found[0]

    def stop(self, broker_id: int) -> None:
        """Send SIGTERM, and wait for a clean end."""
        broker = self.brokers[broker_id]
        assert broker.stop() == broker.clean_exit

    # The replicas, as their files have them.

    def directory_of(self, broker_id: int, partition: Partition) -> Path:
        """The directory of a replica."""
        return self.brokers[broker_id].data / f"{partition[0]}-{partition[1]}"

    def replica_logs(self, partition: Partition) -> dict[int, ReplicaLog]:
        """The logs of a partition, by broker id."""
        found = {each: read_log(self.directory_of(each, partition)) for each in self.brokers}
        return {each: log for each, log in found.items() if log is not None}

    def check_replicas(self, partitions: Iterable[Partition]) -> None:
        """Every broker has the same log of each partition; nothing is written to them. Raises ViolationError."""
        for partition in partitions:
            logs = self.replica_logs(partition)
            end = max((log.end_offset for log in logs.values()), default=0)
            found = different_replicas(partition, logs, end, compacted=False)
            for broker_id, log in logs.items():
                found += batches_of_decreasing_epochs(partition, broker_id, log)
            if found or set(logs) != set(self.brokers):
                raise ViolationError(f"replicas of {partition} on {sorted(logs)}: {found[:5]}")

    def coordinator(self, group: str) -> int:
        """Wait until a broker coordinates the group; its id."""
        found: list[int] = []

        def known() -> bool:
            response = call_or_none(
                self.address(self.serving[0]), FindCoordinatorRequest(key=group), COORDINATOR_VERSION
            )
            found[:] = [] if response is None or response.error_code else [response.node_id]
            return bool(found)

        wait_until(known, f"the coordinator of {group}", every=POLL_S)
        return found[0]

    def _complete(self, image: Image) -> bool:
        expected = {each: self.brokers[each].port for each in self.serving}
        leaders = set(expected) if len(expected) == len(self.brokers) else {-1, *expected}
        return image.ports == expected and image.controller in expected and leaders.issuperset(image.leaders.values())
