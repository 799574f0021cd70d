"""Brokers of a cluster in one process, without a controller: the test sends the controller's requests.

```python
async with Cluster(tmp_path, 1, 2) as cluster:
    cluster.assign("orders", {0: 1, 1: 2})      # leader of each partition
    await cluster.send()                         # LeaderAndIsr to the leaders, UpdateMetadata to all
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kafkalite.clock import Outcome
from kafkalite.cluster.metadata.update import FULL, LEADER_DURING_DELETE
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkalite.server.broker import EMBEDDED
from kafkalite.server.hosting.assigned_partitions import EPOCH_DURING_DELETE
from kafkalite.server.hosting.missing_logs import mark_incomplete
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.resources import BrokerResources
from kafkalite.server.running.clustered_broker import ClusteredBroker
from kafkalite.server.startup.start_alone import open_metadata
from tests.kit.server import Client, connected

CONTROLLER_ID, CONTROLLER_EPOCH = 1, 1
INCREMENTAL = 1
LISTENER = "PLAINTEXT"


@dataclass
class TopicConfigs:
    """The topics, as the tree has them; `held` keeps the reads of configs until `release`."""

    partitions: dict[str, int] = field(default_factory=dict)
    configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    held: bool = False
    reads: list[tuple[list[str], Any]] = field(default_factory=list)

    def read(self, topics: Sequence[str], then: Any) -> None:
        self.reads.append((list(topics), then))
        if not self.held:
            self.release()

    def count_partitions(self, topic: str, then: Any) -> None:
        then(self.partitions.get(topic, 0))

    def release(self) -> None:
        reads, self.reads = self.reads, []
        for topics, then in reads:
            then({topic: self.configs.get(topic, {}) for topic in topics})


class ControllerEpochs:
    """`/controller_epoch` in the tree: that of the latest request, or `epoch`; `reads` counts."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.requested = 0
        self.reads = 0

    def read_epoch(self, then: Any) -> None:
        self.reads += 1
        then(self.requested if self.epoch is None else self.epoch)


class NoTopics:
    """Stands in for the changes of topics, which need a controller."""

    def create_internal(self, _topic: Any, then: Any) -> None:
        then(None)


class ControlledBroker:
    """A broker of a cluster; `start` and `stop` as often as the test likes."""

    def __init__(self, broker_id: int, data: Path, settings: Mapping[str, str] | None = None) -> None:
        self.broker_id = broker_id
        self.epoch = 100 * broker_id
        self.configs = TopicConfigs()
        self.controller_epochs = ControllerEpochs()
        own = {"log.dirs": str(data), "broker.id": str(broker_id)}
        self.config = BrokerConfig({**EMBEDDED, **own, **(settings or {})})
        self.ports = Ports()
        self._running: ClusteredBroker | None = None

    @property
    def running(self) -> ClusteredBroker:
        assert self._running is not None, "not started"
        return self._running

    async def start(self) -> ClusteredBroker:
        """Recover the logs and accept connections; nothing is hosted yet."""
        with ExitStack() as opened:
            resources = BrokerResources(self.config, self.ports, False, lambda text: None)
            opened.callback(resources.close)
            resources.logs.lock()
            mark_incomplete(resources.logs)
            metadata = await open_metadata(resources, self.config)
            loaded = resources.logs.load(lambda topic: self.config.topic_defaults)
            broker = ClusteredBroker(
                resources, metadata.identity, metadata.config, metadata.group_configs, metadata.store,
                cast(TopicManager, NoTopics()), self.configs, self.controller_epochs, loaded,
            )  # fmt: skip
            await broker.open([])
            broker.closing = opened.pop_all()
        self._running = broker
        self.epoch += 1
        broker.controller_requests.fence.registered(self.epoch)
        return broker

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def apply(self, request: Any) -> Any:
        """The response to a request of the controller."""
        self.controller_epochs.requested = request.controller_epoch
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        requests = self.running.controller_requests
        apply = {
            LeaderAndIsrRequest: requests.leader_and_isr,
            StopReplicaRequest: requests.stop_replica,
            UpdateMetadataRequest: requests.update_metadata,
        }[type(request)]
        apply(request, ended.set_result)
        return (await ended).result()


@dataclass
class Assigned:
    """A partition as the controller knows it."""

    leader: int
    epoch: int = 0
    replica: int = 0
    replicas: tuple[int, ...] = ()  # of several
    isr: tuple[int, ...] = ()
    is_new: bool | None = None
    recovery_state: int = 0

    @property
    def assigned(self) -> list[int]:
        return list(self.replicas or (self.replica,))

    @property
    def in_sync(self) -> list[int]:
        return list(self.isr or self.assigned)


@dataclass
class Topic:
    """A topic as the controller knows it."""

    topic_id: bytes
    partitions: dict[int, Assigned] = field(default_factory=dict)


class Cluster:
    """Brokers, and what their controller would know."""

    def __init__(self, path: Path, *broker_ids: int, **settings: str) -> None:
        configs = {name.replace("_", "."): value for name, value in settings.items()}
        self.brokers = {each: ControlledBroker(each, path / str(each), configs) for each in broker_ids}
        self.topics: dict[str, Topic] = {}
        self.controller_epoch = CONTROLLER_EPOCH
        self._opened = AsyncExitStack()
        self._ids = 0

    async def __aenter__(self) -> Cluster:
        for each in self.brokers.values():
            self._opened.push_async_callback(each.stop)
            await each.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def __getitem__(self, broker_id: int) -> ClusteredBroker:
        return self.brokers[broker_id].running

    @asynccontextmanager
    async def client(self, broker_id: int) -> AsyncIterator[Client]:
        async with connected(self[broker_id]) as client:
            yield client

    # The controller.

    def assign(self, topic: str, leaders: Mapping[int, int]) -> Topic:
        """Create the topic, or partitions of it, or move leaders in a new epoch; -1 = no leader."""
        found = self.topics.get(topic)
        if found is None:
            self._ids += 1
            found = self.topics[topic] = Topic(self._ids.to_bytes(16, "big"))
        for index, leader in leaders.items():
            old = found.partitions.get(index)
            epoch = 0 if old is None else old.epoch + 1
            replica = leader if leader >= 0 else 1 if old is None else old.replica
            found.partitions[index] = Assigned(leader, epoch, replica)
        for broker in self.brokers.values():
            broker.configs.partitions[topic] = len(found.partitions)
        return found

    def replicate(
        self,
        topic: str,
        leader: int,
        *replicas: int,
        isr: tuple[int, ...] = (),
        index: int = 0,
        is_new: bool | None = None,
        recovery_state: int = 0,
    ) -> Topic:
        """Assign a partition with several replicas, or change its state in a new leader epoch; the ISR is all of them
        by default.
        """
        found = self.assign(topic, {index: leader})
        part = found.partitions[index]
        part.replicas, part.isr, part.is_new, part.recovery_state = replicas, isr, is_new, recovery_state
        return found

    def update_metadata(self, broker_id: int, *topics: str, kind: int = FULL, **more: Any) -> UpdateMetadataRequest:
        """UpdateMetadata with these topics, all by default."""
        request = UpdateMetadataRequest
        states = [
            request.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=self.topics[name].topic_id,
                partition_states=[self._metadata(at, part) for at, part in self.topics[name].partitions.items()],
            )
            for name in topics or self.topics
        ]
        live = [self._live(each) for each in self.brokers.values() if each._running is not None]
        return request(**self._head(broker_id), type=kind, topic_states=states, live_brokers=live, **more)

    def leader_and_isr(self, broker_id: int, *topics: str, kind: int = INCREMENTAL, **more: Any) -> LeaderAndIsrRequest:
        """LeaderAndIsr with the partitions of these topics, all by default, whose replica is on this broker."""
        request = LeaderAndIsrRequest
        states = []
        for name in topics or self.topics:
            own = {at: part for at, part in self.topics[name].partitions.items() if broker_id in part.assigned}
            if own:
                states.append(
                    request.LeaderAndIsrTopicState(
                        topic_name=name,
                        topic_id=self.topics[name].topic_id,
                        partition_states=[self._leadership(at, part) for at, part in own.items()],
                    )
                )
        return request(**self._head(broker_id), type=kind, topic_states=states, live_leaders=[], **more)

    def stop_replica(
        self, broker_id: int, topic: str, *indexes: int, delete: bool = False, epoch: int | None = None
    ) -> StopReplicaRequest:
        """StopReplica for partitions of a topic."""
        request = StopReplicaRequest.StopReplicaTopicState
        known = self.topics.get(topic)
        states = []
        for index in indexes:
            current = known.partitions[index].epoch if known is not None and index in known.partitions else 0
            leader_epoch = EPOCH_DURING_DELETE if delete else current
            states.append(
                request.StopReplicaPartitionState(
                    partition_index=index,
                    leader_epoch=leader_epoch if epoch is None else epoch,
                    delete_partition=delete,
                )
            )
        return StopReplicaRequest(
            **self._head(broker_id), topic_states=[request(topic_name=topic, partition_states=states)]
        )

    def deletion(self, broker_id: int, topic: str, *indexes: int) -> UpdateMetadataRequest:
        """UpdateMetadata that announces the deletion of partitions."""
        asked = self.update_metadata(broker_id, topic, kind=INCREMENTAL)
        (state,) = asked.topic_states
        state.partition_states = [each for each in state.partition_states if each.partition_index in indexes]
        for each in state.partition_states:
            each.leader = LEADER_DURING_DELETE
        return asked

    async def send(self, *broker_ids: int) -> None:
        """Send LeaderAndIsr and UpdateMetadata with everything to these brokers, all by default."""
        for broker_id in broker_ids or [key for key, each in self.brokers.items() if each._running is not None]:
            answer = await self.brokers[broker_id].apply(self.leader_and_isr(broker_id))
            assert answer.error_code == 0
            assert errors(answer) <= {0, KafkaErrorCode.STALE_CONTROLLER_EPOCH}, errors(answer)
            assert (await self.brokers[broker_id].apply(self.update_metadata(broker_id))).error_code == 0

    def _head(self, broker_id: int) -> dict[str, Any]:
        return {
            "controller_id": CONTROLLER_ID,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.brokers[broker_id].epoch,
        }

    def _live(self, broker: ControlledBroker) -> Any:
        request = UpdateMetadataRequest.UpdateMetadataBroker
        endpoints = [
            request.UpdateMetadataEndpoint(port=each.port, host=each.host, listener=each.listener, security_protocol=0)
            for each in broker.running.addresses
        ]
        return request(id=broker.broker_id, endpoints=endpoints)

    def _metadata(self, index: int, part: Assigned) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=index, controller_epoch=1, leader=part.leader, leader_epoch=part.epoch,
            isr=part.in_sync, zk_version=part.epoch, replicas=part.assigned,
            offline_replicas=[] if part.leader >= 0 else part.assigned,
        )  # fmt: skip

    def _leadership(self, index: int, part: Assigned) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            partition_index=index, controller_epoch=1, leader=part.leader, leader_epoch=part.epoch,
            isr=part.in_sync, partition_epoch=part.epoch, replicas=part.assigned,
            is_new=part.epoch == 0 if part.is_new is None else part.is_new, leader_recovery_state=part.recovery_state,
        )  # fmt: skip


def errors(answer: Any) -> set[int]:
    """The errors of the partitions in a response to LeaderAndIsr or StopReplica."""
    parts = getattr(answer, "partition_errors", []) or [
        part for each in answer.topics for part in each.partition_errors
    ]
    return {part.error_code for part in parts}
