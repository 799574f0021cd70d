"""An administrator of a simulated cluster: it creates, deletes and grows topics, and notes what was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.world import ClusterWorld

TIMEOUT_MS = 5_000
PAUSE_S = 0.7
PARTITIONS_MAX = 8
GROWTH_DELAYS_MAX = 10.0  # of the network, until the second growth: the controller reads and writes the first for 8


class Administrator:
    """Changes topics one after another.

    Arguments:
        world: the cluster.
        factors: the replication factors of new topics.

    Attributes:
        exists: the number of partitions of each topic that was created or grown, and whose deletion was not
            requested since.
        deleted: topics whose deletion was acknowledged; a name is used once.
        early: changes that were acknowledged before they were complete.
    """

    def __init__(self, world: ClusterWorld, factors: Sequence[int] = (1,)) -> None:
        self.exists: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.early: list[str] = []
        self._world = world
        self._random = world.random
        self._factors = factors
        self._names = 0

    async def run(self, until: float) -> None:
        """Change topics until a time of the loop."""
        while self._world.loop.time() < until:
            await pass_time(self._random.expovariate(1 / PAUSE_S))
            change = self._random.choice((self._create, self._create, self._delete, self._grow))
            try:
                await change()
            except KafkaError:
                self._world.count("a change of topics has no response")

    async def create(self, name: str, partitions: int, factor: int = 1, **configs: str) -> bool:
        """Create a topic; returns whether it was acknowledged. `configs`: their keys have `_` for `.`."""
        entries = [
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=entries
        )
        response = await self._controller(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 5)
        if response.topics[0].error_code:
            return False
        self._acknowledged(name, partitions)
        self._world.count("created topics")
        return True

    async def _create(self) -> None:
        self._names += 1
        await self.create(f"new{self._names}", self._random.randint(1, 4), self._factor())

    def _factor(self) -> int:
        return self._factors[0] if len(self._factors) == 1 else self._random.choice(self._factors)

    async def _delete(self) -> None:
        name = self._chosen()
        if name is not None:
            del self.exists[name]
            response = await self._controller(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5)
            if not response.responses[0].error_code:
                self.deleted.add(name)
                self._world.count("deleted topics")

    async def _grow(self) -> None:
        name = self._chosen()
        if name is None or self.exists[name] >= PARTITIONS_MAX:
            return
        count = self.exists[name] + self._random.randint(1, 2)
        grow = self._grow_twice if self._random.random() < 0.5 else self._grow_once
        await grow(await self._controller_id(), name, count)

    async def _grow_once(self, controller: int, name: str, count: int, timeout_ms: int = TIMEOUT_MS) -> None:
        entry = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[entry], timeout_ms=timeout_ms)
        response = await self._world.call(controller, request, 3)
        if not response.results[0].error_code:
            self._acknowledged(name, count)
            self._world.count("grown topics")

    async def _grow_twice(self, controller: int, name: str, count: int) -> None:
        """Do not wait for the first growth: the second may come while the controller writes the states of the first."""

        async def again() -> None:
            await pass_time(self._random.uniform(0.0, GROWTH_DELAYS_MAX) * self._world.delay_s)
            await self._grow_once(controller, name, count + 1)

        first = self._grow_once(controller, name, count, timeout_ms=0)
        for outcome in await asyncio.gather(first, again(), return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _acknowledged(self, name: str, partitions: int) -> None:
        """Note a change; all partitions must have a state by now."""
        self.exists[name] = partitions
        states = self._world.count_states(name)
        if states < partitions:
            self.early.append(f"{name} has {partitions} partitions, {states} of them have a state")

    def _chosen(self) -> str | None:
        names = [name for name in self.exists if name.startswith("new")]
        return self._random.choice(names) if names else None

    async def _controller(self, request: Any, version: int) -> Any:
        """The response of the controller."""
        return await self._world.call(await self._controller_id(), request, version)

    async def _controller_id(self) -> int:
        """The broker that a random broker names as the controller."""
        asked = self._random.choice(list(self._world.brokers))
        controller = (await self._world.metadata(asked)).controller_id
        return controller if controller > 0 else asked
