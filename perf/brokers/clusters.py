"""Brokers that form a cluster over a ZooKeeper of their own: kafkalite, and Apache Kafka before version 4."""

import sys
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from perf.brokers.base import HOST, Broker, BrokerError, Running, free_port, spawn
from perf.brokers.kafkalite import Kafkalite
from tests.kit import jvm
from tests.kit.zookeeper import ZooKeeper, start_zookeeper

SESSION_MS = 2_000
LONG_SESSION_MS = 6_000  # where a broker may be busy with the tree
HEAP = "512m"  # of each broker of Apache Kafka


@dataclass
class BrokerWithZooKeeper(Running):
    """The only broker of its cluster, which ends with its ZooKeeper."""

    zookeeper: ZooKeeper | None = None

    def stop(self) -> None:
        """As `Running.stop`."""
        try:
            super().stop()
        finally:
            self._end_zookeeper()

    def kill(self) -> None:
        """As `Running.kill`."""
        super().kill()
        self._end_zookeeper()

    def _end_zookeeper(self) -> None:
        assert self.zookeeper is not None
        self.zookeeper.kill()


class ClusterKind(Broker):
    """A kind of broker that can form clusters. As a `Broker` it is a cluster of one.

    Attributes:
        starts_within_its_session: a killed broker starts again before its session has expired.
    """

    starts_within_its_session = True

    @abstractmethod
    def start_broker(
        self, directory: Path, zookeeper: str, broker_id: int, port: int, settings: Mapping[str, str]
    ) -> Running:
        """Start one broker on `directory` and wait until it answers ApiVersions. Raises BrokerError."""

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> BrokerWithZooKeeper:
        """As `Broker.start`."""
        zookeeper = start_zookeeper(directory / "zookeeper")
        try:
            broker = self.start_broker(directory / "1", zookeeper.address, 1, free_port(), settings or {})
        except BaseException:
            zookeeper.kill()
            raise
        return BrokerWithZooKeeper(
            self.name, broker.process, broker.port, broker.directory, broker.start_seconds, zookeeper=zookeeper
        )


class KafkaliteCluster(Kafkalite, ClusterKind):
    """kafkalite from this checkout."""

    name = "kafkalite-cluster"
    title = "kafkalite over ZooKeeper"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> BrokerWithZooKeeper:
        """As `Broker.start`."""
        return ClusterKind.start(self, directory, settings)

    def start_broker(
        self, directory: Path, zookeeper: str, broker_id: int, port: int, settings: Mapping[str, str]
    ) -> Running:
        """As `ClusterKind.start_broker`."""
        return self.start_beside({**settings, "zookeeper.connect": zookeeper}, directory, broker_id, port)

    def start_beside(self, settings: Mapping[str, str], directory: Path, broker_id: int, port: int) -> Running:
        """Start one broker on `directory` and wait until it answers ApiVersions. Raises BrokerError.

        Arguments:
            settings: name the coordination service.
            directory, broker_id, port: of the broker.
        """
        directory.mkdir(parents=True, exist_ok=True)
        chosen = {"zookeeper.session.timeout.ms": str(SESSION_MS), **settings, "broker.id": str(broker_id)}
        command = [sys.executable, "-m", "kafkalite", "serve", "--listen", f"{HOST}:{port}"]
        pairs = [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
        return spawn(self.name, [*command, "--data", str(directory / "data"), *pairs], port, directory)


class KafkaCluster(ClusterKind):
    """The last version of Apache Kafka that uses ZooKeeper."""

    name = "kafka-cluster"
    title = f"Apache Kafka {jvm.PREVIOUS} over ZooKeeper"
    starts_within_its_session = False

    def missing(self) -> str | None:
        """As `Broker.missing`."""
        return jvm.java_missing()

    def version(self) -> str:
        """As `Broker.version`."""
        return jvm.PREVIOUS

    def start_broker(
        self, directory: Path, zookeeper: str, broker_id: int, port: int, settings: Mapping[str, str]
    ) -> Running:
        """As `ClusterKind.start_broker`."""
        chosen = {"zookeeper.session.timeout.ms": str(SESSION_MS), **settings, "broker.id": str(broker_id)}
        try:
            kafka = jvm.start_kafka(
                jvm.PREVIOUS, directory, heap=HEAP, port=port, overrides=chosen, quick_start=False, zookeeper=zookeeper
            )
        except jvm.JvmError as error:
            raise BrokerError(str(error)) from error
        return Running(self.name, kafka.process, kafka.port, directory, kafka.start_seconds)


@dataclass
class Cluster:
    """Brokers 1 to `brokers` of one kind over a ZooKeeper, a context manager.

    Attributes:
        replicas: replication factor of the topics of loads.
        settings: of all brokers.
        running: the running brokers by id.
    """

    kind: ClusterKind
    directory: Path
    brokers: int
    replicas: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Start the coordination service and the brokers. Raises BrokerError."""
        self._start_service()
        self._ports = {each: free_port() for each in range(1, self.brokers + 1)}
        try:
            for broker_id in self._ports:
                self.start(broker_id)
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_service(self) -> None:
        self.zookeeper = start_zookeeper(self.directory / "zookeeper")

    def start(self, broker_id: int) -> Running:
        """Start a broker that does not run, with its data, on its port. Raises BrokerError."""
        directory, port = self.directory / str(broker_id), self._ports[broker_id]
        broker = self.kind.start_broker(directory, self.zookeeper.address, broker_id, port, self.settings)
        broker.replicas = self.replicas
        self.running[broker_id] = broker
        return broker

    def kill(self, broker_id: int) -> None:
        """End a broker by SIGKILL."""
        self.running.pop(broker_id).kill()

    def stop(self, broker_id: int) -> None:
        """End a broker by a controlled shutdown. Raises BrokerError."""
        self.running.pop(broker_id).stop()

    def close(self) -> None:
        """Kill all processes."""
        for broker_id in list(self.running):
            self.kill(broker_id)
        self.zookeeper.kill()


@dataclass
class DirectoryCluster(Cluster):
    """Brokers of kafkalite on one machine, which serve their tree themselves."""

    def _start_service(self) -> None:
        (self.directory / "tree").mkdir(parents=True, mode=0o700)

    def start(self, broker_id: int) -> Running:
        """As `Cluster.start`."""
        assert isinstance(self.kind, KafkaliteCluster)
        tree = {
            "kafkalite.coordination.directory": str(self.directory / "tree"),
            "zookeeper.session.timeout.ms": str(LONG_SESSION_MS),
        }
        directory, port = self.directory / str(broker_id), self._ports[broker_id]
        broker = self.running[broker_id] = self.kind.start_beside(tree, directory, broker_id, port)
        return broker

    def close(self) -> None:
        """As `Cluster.close`."""
        for broker_id in list(self.running):
            self.kill(broker_id)
