"""Administrators that change the configs of topics, brokers and groups of a simulated cluster through any broker."""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.cluster.configs.writes import broker_node, group_node, topic_node
from kafkalite.config.describe_and_alter import Operation
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import NoNodeError
from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.server.configs.config_resources import BROKER, GROUP, TOPIC
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.world import ClusterWorld

PAUSES_S = (0.1, 0.5, 2.0)
TOPIC_NAMES = ("one", "three")
TOPIC_KEYS = ("file.delete.delay.ms", "index.interval.bytes", "segment.jitter.ms", "segment.index.bytes")
BROKER_KEYS = ("log.cleaner.threads", "num.io.threads", "background.threads", "num.replica.fetchers")
GROUP_KEYS = {"consumer.session.timeout.ms": 3_000, "consumer.assignment.interval.ms": 100}
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


class Owned(NamedTuple):
    """The key of one administrator: resource type and name, key, smallest value, and the only broker that sets it."""

    kind: int
    name: str
    key: str
    low: int = 1_000
    broker_id: int | None = None

    @property
    def path(self) -> str:
        """The node with the key."""
        if self.kind == TOPIC:
            return topic_node(self.name).path
        return (group_node(self.name) if self.kind == GROUP else broker_node(self.broker_id)).path


def owned_keys(world: ClusterWorld) -> list[Owned]:
    """A key for each administrator; several are in each node."""
    one = next(iter(world.brokers))
    return [
        *(Owned(TOPIC, topic, key) for topic in TOPIC_NAMES for key in TOPIC_KEYS),
        *(Owned(BROKER, "", key, 1) for key in BROKER_KEYS),
        *(Owned(BROKER, str(one), key, 1, one) for key in BROKER_KEYS[:2]),
        *(Owned(GROUP, group, key, low) for group in ("g", "h") for key, low in GROUP_KEYS.items()),
    ]


class ConfigSetter:
    """Sets and deletes one key, one change after another.

    Arguments:
        world: the cluster.
        owned: the key.

    Attributes:
        allowed: the values that the key may have in the tree; None = not set. After an acknowledged change, one.
    """

    def __init__(self, world: ClusterWorld, owned: Owned) -> None:
        self.owned = owned
        self.allowed: set[str | None] = {None}
        self._world = world
        self._random = world.random
        self._mean_s = self._random.choice(PAUSES_S)
        self._changes = 0

    async def run(self, until: float) -> None:
        """Change the key until a time of the loop."""
        while self._world.loop.time() < until:
            await pass_time(self._random.expovariate(1 / self._mean_s))
            self._changes += 1
            value = None if self._random.random() < 0.2 else str(self.owned.low + self._changes)
            self.allowed.add(value)
            try:
                error = await self._alter(value)
            except KafkaError:
                self._world.count("a change of configs has no response")
                continue
            if error:
                self._world.count("failed changes of configs")
            else:
                self.allowed = {value}
                self._world.count("changes of configs")

    async def _alter(self, value: str | None) -> int:
        operation = Operation.DELETE if value is None else Operation.SET
        config = Resource.AlterableConfig(name=self.owned.key, config_operation=operation, value=value)
        resource = Resource(resource_type=self.owned.kind, resource_name=self.owned.name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        broker_id = self.owned.broker_id or self._random.choice(list(self._world.brokers))
        response = await self._world.call(broker_id, request, 1)
        error: int = response.responses[0].error_code
        return error

    def check(self) -> None:
        """The value in the tree is the one that was acknowledged last."""
        found = stored(self._world, self.owned.path).get(self.owned.key)
        text = f"{self.owned.path}: {self.owned.key} is {found}, expected one of {self.allowed}"
        assert found in self.allowed, text


def stored(world: ClusterWorld, path: str) -> dict[str, str]:
    """The configs in a node of the tree."""
    try:
        data, _ = world.zookeeper.tree.get(path)
    except NoNodeError:
        return {}
    return znodes.decode_configs(path, data)


def check_applied(world: ClusterWorld) -> None:
    """Every broker has applied the configs of the tree."""
    groups = {group: configs for group in ("g", "h") if (configs := stored(world, group_node(group).path))}
    for broker_id, broker in world.brokers.items():
        running = broker.running
        for all_brokers in (True, False):
            path = broker_node(None if all_brokers else broker_id).path
            found = running.config.stored_texts(all_brokers=all_brokers)
            assert found == stored(world, path), f"broker {broker_id}: {path}: {found}, tree {stored(world, path)}"
        assert running.group_configs == groups, f"broker {broker_id}: {running.group_configs}, tree {groups}"
        for hosted in running.replicas:
            path = topic_node(hosted.name).path
            assert hosted.overrides == stored(world, path), f"broker {broker_id}: {path}: {hosted.overrides}"
            assert hosted.config == running.config.stored_topic_config(hosted.overrides).config
            for partition in hosted.partitions.values():
                assert partition.config is hosted.config
