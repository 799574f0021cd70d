"""An administrator of a simulated cluster: it creates, deletes and grows topics, and notes what was acknowledged."""

from __future__ import annotations

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


class Administrator:
    """Changes topics one after another.

    Arguments:
        world: the cluster.

    Attributes:
        exists: the number of partitions of each topic that was created or grown, and whose deletion was not
            requested since.
        deleted: topics whose deletion was acknowledged; a name is used once.
        early: changes that were acknowledged before they were complete.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self.exists: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.early: list[str] = []
        self._world = world
        self._random = world.random
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

    async def create(self, name: str, partitions: int) -> bool:
        """Create a topic; returns whether it was acknowledged."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        response = await self._controller(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 5)
        if response.topics[0].error_code:
            return False
        self._acknowledged(name, partitions)
        self._world.count("created topics")
        return True

    async def _create(self) -> None:
        self._names += 1
        await self.create(f"new{self._names}", self._random.randint(1, 4))

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
        if name is not None and self.exists[name] < PARTITIONS_MAX:
            count = self.exists[name] + self._random.randint(1, 2)
            entry = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
            response = await self._controller(CreatePartitionsRequest(topics=[entry], timeout_ms=TIMEOUT_MS), 3)
            if not response.results[0].error_code:
                self._acknowledged(name, count)
                self._world.count("grown topics")

    def _acknowledged(self, name: str, partitions: int) -> None:
        """Note a change; all partitions must have a state by now."""
        self.exists[name] = partitions
        stated = self._world.stated(name)
        if stated < partitions:
            self.early.append(f"{name} has {partitions} partitions, {stated} of them have a state")

    def _chosen(self) -> str | None:
        names = [name for name in self.exists if name.startswith("new")]
        return self._random.choice(names) if names else None

    async def _controller(self, request: Any, version: int) -> Any:
        """The response of the broker that a random broker names as the controller."""
        asked = self._random.choice(list(self._world.brokers))
        controller = (await self._world.metadata(asked)).controller_id
        return await self._world.call(controller if controller > 0 else asked, request, version)
