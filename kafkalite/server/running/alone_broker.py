"""Defines `AloneBroker`, the only broker of its cluster: it changes topics itself, leads every partition and
is every coordinator. Clients reach it at the address of their connection, unless `advertised.listeners` is set.
"""

from collections.abc import Callable, Iterable

from kafkalite._speedups.net.framing import Connection
from kafkalite.clock import Outcome, Then, outcome_of
from kafkalite.cluster.metadata.image import ClusterImage, ClusterTables, TopicImage
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.cluster.topics.control import OwnTopics
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Node
from kafkalite.server.hosting.hosted_partitions import HostedPartitions
from kafkalite.server.process.resources import BrokerResources
from kafkalite.server.running.coordinators import COORDINATORS
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.recovery.load_logs import LoadedDirectory


class AloneBroker(RunningBroker):
    """A broker that is alone; `RunningBroker` describes the arguments."""

    def __init__(
        self,
        resources: BrokerResources,
        identity: Identity,
        config: BrokerConfig,
        group_configs: dict[str, dict[str, str]],
        store: MetadataStore,
        tables: ClusterTables,
        hosting: HostedPartitions,
        loaded: list[LoadedDirectory],
    ) -> None:
        self._hosted = hosting
        topics = TopicManager(self, store, OwnTopics(self))
        super().__init__(resources, identity, config, group_configs, store, topics, tables, hosting, loaded)

    def nodes(self, image: ClusterImage, connection: Connection) -> Iterable[Node]:
        """Return this broker."""
        return (self.listening.own_node(self.broker_id, self.config.broker_rack, connection),)

    def offline_partitions(self, topic_id: bytes) -> frozenset[int]:
        """Return the partitions of a topic that cannot be served."""
        return self.replicas.offline(topic_id)

    def coordinators(self, connection: Connection, topic: str) -> Callable[[str], Node | None]:
        """Return a function that returns this broker."""
        node = self.own_node(connection)
        return lambda _key: node

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """The tables are the tree."""
        found = self.tables.topics.get(topic)
        then(0 if found is None else len(found.partitions))

    def topic_changed(self, topic: TopicImage, done: Then = Outcome.result) -> None:
        """Host a topic that was durably created or changed; `done` is called with the outcome."""

        def hosted(outcome: Outcome) -> None:
            done(outcome_of(self._topic_hosted, (topic,)) if outcome.error is None else outcome)

        self._hosted.apply(topic, hosted)

    def _topic_hosted(self, topic: TopicImage) -> None:
        self.tables.put(topic)
        self._coordinate(topic.name)

    def topic_gone(self, name: str, done: Then = Outcome.result) -> None:
        """Drop a topic that was durably deleted; `done` is called when its directories are renamed for deletion."""
        self.tables.remove(name)
        self.descriptions.remove(name)
        self._hosted.drop(name, done)
        for coordinator in self._coordinators:
            coordinator.topic_gone(name)

    def _coordinate(self, changed: str) -> None:
        """Pass a changed topic to the coordinators, and create the coordinator of a topic when its topic exists."""
        if changed in COORDINATORS and changed in self.tables.topics:
            self.coordinator_of(changed)
        for coordinator in self._coordinators:
            coordinator.topic_changed(changed)
