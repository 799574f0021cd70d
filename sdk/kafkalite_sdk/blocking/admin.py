"""The blocking administration of a cluster."""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from kafkalite_sdk.admin import admin as asynchronous
from kafkalite_sdk.blocking.client import BlockingClient
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.options import AdminOptions

if TYPE_CHECKING:
    from kafkalite_sdk.blocking import admin_parts


class _LoopAdmin(asynchronous.Admin):
    """An admin of the SDK."""

    @property
    def cluster_client(self) -> ClusterClient:
        return self._client


class Admin(BlockingClient[_LoopAdmin]):
    """Administers a cluster, for programs without an event loop.

        with Admin("localhost:9092") as admin:
            admin.topics.create("orders", NewTopic("payments", partitions=6)).check()
            for topic in admin.topics.list():
                print(topic.name, len(topic.partitions))

    Parts, methods, settings and errors are those of `kafkalite_sdk.Admin`. Any number of threads may use it.

    Arguments: as of `kafkalite_sdk.Admin`.
    Raises: as `kafkalite_sdk.Admin`.
    """

    @readable("kafkalite_sdk.AdminOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        environment: Environment | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        client = _LoopAdmin(bootstrap_servers, environment=environment, **options)
        super().__init__(client, client.cluster_client)

    @cached_property
    def topics(self) -> "admin_parts.Topics":
        """List, describe, create and delete topics, add partitions."""
        from kafkalite_sdk.blocking.admin_parts import Topics

        return Topics(self._client.topics, self._thread)

    @cached_property
    def partitions(self) -> "admin_parts.Partitions":
        """Offsets, deletion of records, producers, leader elections and reassignments."""
        from kafkalite_sdk.blocking.admin_parts import Partitions

        return Partitions(self._client.partitions, self._thread)

    @cached_property
    def configs(self) -> "admin_parts.Configs":
        """Describe and change configs of topics, brokers and groups."""
        from kafkalite_sdk.blocking.admin_parts import Configs

        return Configs(self._client.configs, self._thread)

    @cached_property
    def cluster(self) -> "admin_parts.Cluster":
        """Brokers, log directories and features."""
        from kafkalite_sdk.blocking.admin_parts import Cluster

        return Cluster(self._client.cluster, self._thread)

    @cached_property
    def groups(self) -> "admin_parts.Groups":
        """List, describe, create and delete groups, remove members."""
        from kafkalite_sdk.blocking.admin_parts import Groups

        return Groups(self._client.groups, self._thread)

    @cached_property
    def group_offsets(self) -> "admin_parts.GroupOffsets":
        """Read, set, rewind and delete the committed offsets of groups."""
        from kafkalite_sdk.blocking.admin_parts import GroupOffsets

        return GroupOffsets(self._client.group_offsets, self._thread)

    @cached_property
    def acls(self) -> "admin_parts.Acls":
        """List, create and delete ACLs."""
        from kafkalite_sdk.blocking.admin_parts import Acls

        return Acls(self._client.acls, self._thread)

    @cached_property
    def quotas(self) -> "admin_parts.Quotas":
        """Describe and change client quotas."""
        from kafkalite_sdk.blocking.admin_parts import Quotas

        return Quotas(self._client.quotas, self._thread)

    @cached_property
    def tokens(self) -> "admin_parts.Tokens":
        """Create, renew, expire and describe delegation tokens."""
        from kafkalite_sdk.blocking.admin_parts import Tokens

        return Tokens(self._client.tokens, self._thread)

    @cached_property
    def users(self) -> "admin_parts.Users":
        """Describe, set and delete the SCRAM credentials of users."""
        from kafkalite_sdk.blocking.admin_parts import Users

        return Users(self._client.users, self._thread)

    @cached_property
    def transactions(self) -> "admin_parts.Transactions":
        """List, describe and end transactions, find those that hang."""
        from kafkalite_sdk.blocking.admin_parts import Transactions

        return Transactions(self._client.transactions, self._thread)
