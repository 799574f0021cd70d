"""Defines `MemberBroker`, a broker that has joined its cluster: `ClusteredBroker` with its membership."""

import socket
from collections.abc import Callable, Mapping, Sequence

from kafkalite.cluster.metadata_store import MetadataStore
from kafkalite.cluster.topics import Refusal, applying
from kafkalite.cluster.topics_in_cluster import TopicsInCluster
from kafkalite.config.broker import BrokerConfig
from kafkalite.server.assigned_partitions import AssignedPartitions
from kafkalite.server.cluster_member import ClusterMember
from kafkalite.server.clustered_broker import ClusteredBroker
from kafkalite.server.resources import BrokerResources
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.recovery.load_logs import LoadedDirectory


class MemberBroker(ClusteredBroker):
    """A broker of a cluster.

    Arguments:
        resources, identity, config, group_configs, store, loaded: as of `RunningBroker`.
        member: the part of this broker in its cluster.
    """

    def __init__(
        self,
        resources: BrokerResources,
        identity: Identity,
        config: BrokerConfig,
        group_configs: dict[str, dict[str, str]],
        store: MetadataStore,
        member: ClusterMember,
        loaded: list[LoadedDirectory],
    ) -> None:
        topics = TopicsInCluster(member, member.writer)
        super().__init__(resources, identity, config, group_configs, store, topics, member, loaded)
        self.member = member
        self.configs.reader = member
        member.attach(self)

    async def open(self, inherited: Sequence[tuple[str, socket.socket]]) -> None:
        """Accept connections, and join the cluster. Raises OSError, StartError."""
        await super().open(inherited)
        try:
            await self.member.join()
        except BaseException:
            await self.stop(0)
            raise

    async def _close_session(self) -> None:
        await self.member.close()

    def configure_broker(
        self, texts: Mapping[str, str], *, all_brokers: bool, then: Callable[[Refusal | None], None]
    ) -> None:
        """Replace dynamic configs in the tree; every broker applies them when it is notified."""
        broker_id = None if all_brokers else self.broker_id
        self.member.writer.configure_broker(broker_id, texts, applying(lambda: None, then))

    def configure_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        """Apply the configs of a topic that were read from the tree."""
        assert isinstance(self.hosting, AssignedPartitions)
        self.hosting.configure_topic(name, overrides)
