"""A cluster of three scripted brokers for a simulated client: leaders move, brokers stop, responses are errors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from kafkalite_sdk.client.environment import Environment

from kafkalite._speedups.records.batches import batches
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.schema import Request
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.scripted_cluster import NO_LEADER
from tests.kit.scripted_frames import foreign, truncated, wrong_correlation_id
from tests.story.sdk.virtual import check_nothing_left
from tests.story.sdk.world import DELAYS_S, FRAGMENTS

T = TypeVar("T")

NODES = 3
REQUESTS: tuple[type[Request], ...] = (ProduceRequest, ProduceRequest, MetadataRequest, InitProducerIdRequest)
NOT_APPLIED = [KafkaErrorCode.NOT_ENOUGH_REPLICAS, KafkaErrorCode.CORRUPT_MESSAGE]
MAYBE_APPLIED = [
    KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaErrorCode.KAFKA_STORAGE_ERROR,
    KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaErrorCode.REQUEST_TIMED_OUT,
    KafkaErrorCode.NETWORK_EXCEPTION,
]


class ScriptedWorld:
    """A cluster that fails; the attributes are those of `World`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = asyncio.get_running_loop()
        self.network = MemoryNetwork(
            Random(seed + 1), delay_s=self.random.choice(DELAYS_S), fragment_bytes=self.random.choice(FRAGMENTS)
        )
        self.broker = ScriptedBroker(NODES, self.network)
        self.cluster = self.broker.cluster
        self.bootstrap = self.broker.bootstrap
        self.counts: dict[str, int] = {}

    def environment(self) -> Environment:
        """The environment of a client."""
        return Environment(dial=self.network.dial, random=Random(self.random.random()), wall_ms=virtual_wall_ms)

    def count(self, event: str) -> None:
        """Count an event of the simulation."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def logs(self) -> dict[tuple[str, int], list[tuple[int, bytes | None]]]:
        """Offset and value of every record, by partition."""
        return {
            (name, index): [
                (record.offset, record.value)
                for each in partition.log
                for found in batches(each.data)
                for record in found
            ]
            for name, topic in self.cluster.topics.items()
            for index, partition in enumerate(topic.partitions)
        }

    async def inject_faults(self, until: float) -> None:
        """Let faults happen until a time of the loop; at its end the cluster works."""
        mean_s = self.random.choice((0.3, 1.0, 4.0))
        faults: list[Callable[[], Awaitable[None]]] = [
            self._move_leader,
            self._move_leader,
            self._lose_leader,
            self._error,
            self._error,
            self._false_frame,
            self._lost_response,
            self._reset,
            self._stall,
            self._freeze,
            self._stop,
            self._grow,
        ]
        while (pause_s := self.random.expovariate(1 / mean_s)) < until - self.loop.time():
            await pass_time(pause_s)
            fault = self.random.choice(faults)
            self.count(fault.__name__.strip("_"))  # type: ignore[attr-defined]
            await fault()
        self.broker.end_rules()

    def _partition(self) -> tuple[str, int]:
        name = self.random.choice(sorted(self.cluster.topics))
        return name, self.random.randrange(len(self.cluster.topics[name].partitions))

    def _node(self) -> int:
        return self.random.randint(1, NODES)

    async def _move_leader(self) -> None:
        self.cluster.move_leader(*self._partition(), self._node())

    async def _lose_leader(self) -> None:
        partition = self._partition()
        self.cluster.move_leader(*partition, NO_LEADER)
        await pass_time(self.random.choice((0.1, 2.0)))
        self.cluster.move_leader(*partition, self._node())

    async def _error(self) -> None:
        applied = self.random.random() < 0.3
        code = self.random.choice(MAYBE_APPLIED if applied else NOT_APPLIED + MAYBE_APPLIED)
        times = self.random.choice((1, 1, 5))
        some = [self._partition()] if self.random.random() < 0.5 else None
        self.broker.on(ProduceRequest, error=code, times=times, partitions=some, applied=applied)

    async def _false_frame(self) -> None:
        frame = self.random.choice((truncated, foreign, wrong_correlation_id))
        self.broker.on(self.random.choice(REQUESTS), frame=frame)

    async def _lost_response(self) -> None:
        bytes_sent = self.random.choice((0, 3, 10))
        self.broker.on(self.random.choice(REQUESTS), disconnect_after_bytes=bytes_sent)

    async def _reset(self) -> None:
        node = self.broker.nodes[self._node()]
        self.network.reset(node.host, node.port, share=self.random.choice((0.5, 1.0)))

    async def _stall(self) -> None:
        node = self.broker.nodes[self._node()]
        self.network.stall(node.host, node.port, self.random.choice((0.1, 0.5, 2.0, 6.0)))

    async def _freeze(self) -> None:
        node = self.broker.nodes[self._node()]
        node.freeze()
        await pass_time(self.random.choice((0.1, 1.0, 5.0)))
        node.thaw()

    async def _stop(self) -> None:
        node = self.broker.nodes[self._node()]
        node.stop()
        for name, topic in self.cluster.topics.items():
            for index, partition in enumerate(topic.partitions):
                if partition.leader == node.node_id and self.random.random() < 0.7:
                    self.cluster.move_leader(name, index, node.node_id % NODES + 1)
        await pass_time(self.random.choice((0.0, 0.3, 3.0)))
        await node.start()

    async def _grow(self) -> None:
        name = self.random.choice(sorted(self.cluster.topics))
        count = len(self.cluster.topics[name].partitions)
        if count < 6:
            self.cluster.add_partitions(name, count + 1)


@asynccontextmanager
async def scripted_world(seed: int) -> AsyncIterator[ScriptedWorld]:
    """A world whose brokers run; after it no task, no timer and no connection may be left."""
    found = ScriptedWorld(seed)
    async with found.broker:
        yield found
    await pass_time(10.0)  # the ends of the last connections arrive
    check_nothing_left()


def run_scripted(seed: int, scenario: Callable[[ScriptedWorld], Awaitable[T]]) -> T:
    """Run a scenario in a world of its own."""

    async def main() -> T:
        async with scripted_world(seed) as found:
            return await scenario(found)

    print(f"KAFKALITE_SEED={seed}")
    return run_virtually(main)[0]
