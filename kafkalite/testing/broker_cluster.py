"""Runs the brokers of a cluster in threads of this process; each can be killed, stopped, started and disconnected.

    with BrokerCluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader("orders", 0))

The brokers start as those of a production cluster do (`zookeeper.connect`). Their tree is in memory, on a server of
ZooKeeper's protocol in another thread.
"""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.config.keys import SettingValue, setting_texts
from kafkalite.config.replication import replication_settings
from kafkalite.coordination.znodes.brokers import registration_path
from kafkalite.server.broker import Broker
from kafkalite.server.running.clustered_broker import ClusteredBroker
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.loop_thread import DEADLINE_S
from kafkalite.testing.real_process import RealProcess
from kafkalite.testing.thread import BrokerThread
from kafkalite.testing.zookeeper_thread import ZooKeeperThread

if TYPE_CHECKING:
    from kafkalite_sdk.blocking import Admin

T = TypeVar("T")

HOST = "127.0.0.1"
SESSION_MS = 3_000  # on a busy machine, a thread of the test may keep the others waiting for a second


class ClusterBrokerThread(BrokerThread):
    """One incarnation of a broker of a `BrokerCluster`, in its own thread."""

    def __init__(self, data_dir: str, settings: Mapping[str, SettingValue]) -> None:
        super().__init__(data_dir, settings)
        self._thread.name = f"kafkalite-broker-{settings['broker.id']}"
        self._process = RealProcess()
        self._killed = False

    @property
    def running(self) -> ClusteredBroker:
        """The parts of the broker."""
        running = self.broker.running
        assert isinstance(running, ClusteredBroker)
        return running

    def kill(self) -> None:
        """End the broker as SIGKILL does, and wait for its thread."""
        self._killed = True
        self.close()

    def cut(self, cut: bool) -> None:
        """Cut the network of the broker off, or restore it."""

        async def applied() -> None:
            self._process.cut(cut)

        self.run(applied())

    def _create(self) -> Broker:
        return Broker(self._data_dir, self._settings, ports=self._process.ports())

    async def _end(self, broker: Broker) -> None:
        if self._killed:
            await self._process.kill()
        else:
            await broker.stop()


class BrokerCluster:
    """A cluster of brokers 1 to `brokers`, a context manager.

    Arguments:
        brokers: their number.
        settings: configs of all brokers, under Kafka's names. Without others, topics have three replicas where there
            are as many brokers, and acks=all needs two of them.

    Raises (from `__enter__`): as `Broker.start`.

    Attributes:
        broker_ids: of all brokers, running or not.
    """

    def __init__(self, brokers: int = 3, settings: Mapping[str, SettingValue] | None = None) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers was requested, expected at least 1")
        self.broker_ids = tuple(range(1, brokers + 1))
        self._settings = {**replication_settings(brokers), **(settings or {})}
        self._opened = ExitStack()
        self._ports: dict[int, int] = {}
        self._threads: dict[int, ClusterBrokerThread] = {}
        self._cut: set[int] = set()
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._directory = tempfile.mkdtemp(prefix="kafkalite-cluster-")
            opened.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._ports = {each: self._reserve_port(opened) for each in self.broker_ids}
            self._zookeeper = opened.enter_context(ZooKeeperThread())
            opened.callback(self._close)
            for broker_id in self.broker_ids:
                self.start(broker_id)
            self._wait("all brokers know each other", self._all_known)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @staticmethod
    def _reserve_port(opened: ExitStack) -> int:
        """A port that no other process gets while its broker does not run: this socket has it, and never listens."""
        reserved = opened.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, 0))
        port: int = reserved.getsockname()[1]
        return port

    # Addresses.

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of all brokers, running or not, separated by commas."""
        return ",".join(map(self.address, self.broker_ids))

    @property
    def zookeeper_connect(self) -> str:
        """HOST:PORT of the server that has the tree."""
        return self._zookeeper.address

    def address(self, broker_id: int) -> str:
        """HOST:PORT of one broker; the same after each start. Raises KeyError."""
        return f"{HOST}:{self._ports[broker_id]}"

    def log_directory(self, broker_id: int) -> str:
        """The path of the log directory of a broker."""
        return os.path.join(self._directory, str(broker_id))

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the brokers that run, disconnected ones included."""
        return tuple(sorted(self._threads))

    # Faults.

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run, with its data, and wait until it is registered. Raises RuntimeError."""
        if broker_id in self._threads:
            raise RuntimeError(f"broker {broker_id} runs already")
        thread = ClusterBrokerThread(self.log_directory(broker_id), self._broker_settings(broker_id))
        thread.__enter__()
        self._threads[broker_id] = thread
        thread.running.controller_requests.observers.append(lambda change: self._notify())
        self._notify()

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly. Raises RuntimeError if it does not run."""
        self._remove(broker_id).close()

    def kill(self, broker_id: int) -> None:
        """End a broker as SIGKILL does: connections break, its session ends after the session timeout or at its start.

        What it has written stays. Raises RuntimeError if it does not run.
        """
        self._remove(broker_id).kill()

    def disconnect(self, broker_id: int) -> None:
        """Cut the network of a broker off, from clients, other brokers and the coordination service.

        Connections break, and new ones are not answered. Raises RuntimeError if it does not run.
        """
        self._thread(broker_id).cut(True)
        self._cut.add(broker_id)

    def reconnect(self, broker_id: int) -> None:
        """Restore the network of a broker. Raises RuntimeError if it does not run."""
        self._thread(broker_id).cut(False)
        self._cut.discard(broker_id)

    def expire(self, broker_id: int) -> None:
        """End the session of a broker at once, as the coordination service does after the session timeout.

        Waits until a connected broker is registered again. Does nothing if it has no session. Raises TimeoutError.
        """

        def expire_session(server: FakeZooKeeper) -> bool:
            node = server.tree.find(registration_path(broker_id))
            if node is None or node.owner not in server.sessions:
                return False
            server.expire(node.owner)
            return True

        before = self._broker_epoch(broker_id)
        if self._zookeeper.call(expire_session) and broker_id in self._connected():
            self._wait(
                f"broker {broker_id} is registered again and known to all connected brokers",
                lambda: None if self._broker_epoch(broker_id) == before else self._known(broker_id),
            )

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, SettingValue] | None = None) -> None:
        """Create a topic, and wait until every running broker knows its leaders.

        Arguments:
            name: of the topic.
            partitions: number of partitions.
            configs: of the topic, under Kafka's names.

        Raises KafkaError with the broker's reason if it cannot be created.
        """
        from kafkalite_sdk.admin import NewTopic

        new = NewTopic(name, partitions=partitions, configs=setting_texts(configs or {}))
        with self._admin() as admin:
            admin.topics.create(new).check()
        for partition in range(partitions):
            self.leader(name, partition)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaError with the broker's reason if it cannot be deleted."""
        with self._admin() as admin:
            admin.topics.delete(name).check()

    def _admin(self) -> "Admin":
        from kafkalite_sdk.blocking import Admin

        return Admin(self.bootstrap_servers)

    # The state of the cluster.

    def controller(self) -> int:
        """Return the controller; waits until all connected brokers name the same one, and it is connected.

        Raises TimeoutError.
        """
        return self._agreed("a controller", lambda image: image.controller_id)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition; waits until all connected brokers name the same one, and it is connected.

        Raises TimeoutError.
        """

        def find_leader(image: ClusterImage) -> int | None:
            found = image.topics.get(topic)
            state = None if found is None else found.partition(partition)
            return None if state is None else state.leader

        return self._agreed(f"a leader of {topic}-{partition}", find_leader)

    def _agreed(self, subject: str, value: Callable[[ClusterImage], int | None]) -> int:
        def one() -> int | None:
            found = {value(image) for image in self._images().values()}
            (agreed, *others) = found or {None}
            return None if others or agreed not in self._connected() else agreed

        return self._wait(f"all connected brokers name {subject} that is connected", one)

    def _all_known(self) -> bool | None:
        return all(map(self._known, self.broker_ids)) or None

    def _known(self, broker_id: int) -> bool | None:
        return all(broker_id in image.brokers.ids for image in self._images().values()) or None

    def _broker_epoch(self, broker_id: int) -> int | None:
        thread = self._threads.get(broker_id)
        return None if thread is None else thread.running.controller_requests.fence.broker_epoch

    def _connected(self) -> list[int]:
        return [each for each in self._threads if each not in self._cut]

    def _images(self) -> dict[int, ClusterImage]:
        return {each: self._threads[each].running.image for each in self._connected()}

    def _wait(self, condition: str, value: Callable[[], T | None]) -> T:
        """Wait until `value` returns something, evaluated again when the image of a broker has changed."""
        found: T | None = None

        def evaluate() -> bool:
            nonlocal found
            found = value()
            return found is not None

        with self._changed:
            if not self._changed.wait_for(evaluate, DEADLINE_S):
                raise TimeoutError(f"after {DEADLINE_S:.0f} s it is still not true that {condition}")
        assert found is not None
        return found

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # Threads.

    def _broker_settings(self, broker_id: int) -> dict[str, SettingValue]:
        return {
            "zookeeper.session.timeout.ms": SESSION_MS,
            "offsets.topic.num.partitions": len(self.broker_ids),
            "transaction.state.log.num.partitions": len(self.broker_ids),
            **self._settings,
            "zookeeper.connect": self._zookeeper.address,
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{self.address(broker_id)}",
        }

    def _thread(self, broker_id: int) -> ClusterBrokerThread:
        if broker_id not in self._threads:
            raise RuntimeError(f"broker {broker_id} does not run")
        return self._threads[broker_id]

    def _remove(self, broker_id: int) -> ClusterBrokerThread:
        self._thread(broker_id)
        self._cut.discard(broker_id)
        return self._threads.pop(broker_id)

    def _close(self) -> None:
        for broker_id in self.running:
            self.kill(broker_id)
