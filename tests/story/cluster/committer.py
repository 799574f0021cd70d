"""An application of a simulated cluster that commits offsets of a group without members: acknowledged ones are kept."""

from __future__ import annotations

from kafkalite_sdk.consumer.consumer import Consumer

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.world import ClusterWorld

PARTITION = TopicPartition("one", 0)
TIMEOUT_S = 10.0


class Committer:
    """Commits 1, 2, 3 and so on.

    Arguments:
        world: the cluster.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._tried = 0
        self._acknowledged = 0

    async def run(self, until: float) -> None:
        """Commit until a time of the loop."""
        while self._world.loop.time() < until:
            try:
                async with self._consumer() as consumer:
                    while self._world.loop.time() < until and self._world.random.random() > 0.02:
                        await self._commit(consumer)
                        await pass_time(self._world.random.uniform(0.0, 0.2))
            except KafkaError:  # no broker is reachable
                self._world.count("start of the committer fails")
                await pass_time(1.0)

    async def check(self) -> None:
        """The committed offset is the last acknowledged one, or one that was tried later."""
        async with self._consumer() as consumer:
            (found,) = (await consumer.committed([PARTITION])).values()
        offset = 0 if found is None else found.offset
        assert self._acknowledged <= offset <= self._tried, (
            f"{offset} is committed, {self._acknowledged} was acknowledged, {self._tried} was tried"
        )
        self._world.counts["acknowledged commits"] = self._acknowledged

    async def _commit(self, consumer: Consumer[bytes, bytes]) -> None:
        self._tried += 1
        try:
            await consumer.commit({PARTITION: self._tried}, timeout=TIMEOUT_S)
        except KafkaError:
            self._world.count("commit of the committer fails")
        else:
            self._acknowledged = self._tried

    def _consumer(self) -> Consumer[bytes, bytes]:
        consumer = Consumer(
            self._world.bootstrap, environment=self._world.environment(), group="committer", enable_auto_commit=False
        )
        consumer.assign([PARTITION])
        return consumer
