"""The administration of a cluster: one client, and an object for each kind of resource."""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Self, Unpack

from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.options import AdminOptions, client_settings

if TYPE_CHECKING:
    from kafkalite_sdk.admin.acls import Acls
    from kafkalite_sdk.admin.cluster import Cluster
    from kafkalite_sdk.admin.configs import Configs
    from kafkalite_sdk.admin.group_offsets import GroupOffsets
    from kafkalite_sdk.admin.groups import Groups
    from kafkalite_sdk.admin.partitions import Partitions
    from kafkalite_sdk.admin.quotas import Quotas
    from kafkalite_sdk.admin.tokens import Tokens
    from kafkalite_sdk.admin.topics import Topics
    from kafkalite_sdk.admin.transactions import Transactions
    from kafkalite_sdk.admin.users import Users


class Admin:
    """Administers a cluster. It belongs to the event loop in which it is started.

        async with Admin("localhost:9092") as admin:
            created = await admin.topics.create("orders", NewTopic("payments", partitions=6))
            created.check()  # raises the first error
            for topic in await admin.topics.list():
                print(topic.name, len(topic.partitions))

    A call about many resources returns `Outcomes`: a result or an error for each. Requests are repeated until the
    deadline while a broker rejects them without effect; those whose response was lost only if a second one is safe.

    Arguments:
        bootstrap_servers: "host:port,host:port" or a list of addresses; the first brokers to connect to.
        environment: connections and randomness; simulations replace it.
        options: see `help(kafkalite_sdk.AdminOptions)`.

    Raises:
        TypeError: an option is unknown. ValueError: a value is not valid.
    """

    @readable("kafkalite_sdk.AdminOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        environment: Environment | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        settings = client_settings("Admin", bootstrap_servers, options)
        self._client = ClusterClient(settings, environment, name="Admin")
        self._driver = Driver(self._client)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the cluster. After a failure it may be called again.

        Raises:
            KafkaConnectionError: no bootstrap server is reachable. KafkaTimeoutError: `default_api_timeout_ms` has
            passed. ClientUseError: the client is started or closed.
        """
        await self._client.start()

    async def close(self) -> None:
        """Close all connections; open calls fail with ClientUseError. A second call does nothing."""
        await self._client.close()

    # Each part is imported when it is used: its messages are some milliseconds of a short command.

    @cached_property
    def topics(self) -> "Topics":
        """List, describe, create and delete topics, add partitions."""
        from kafkalite_sdk.admin.topics import Topics

        return Topics(self._driver)

    @cached_property
    def partitions(self) -> "Partitions":
        """Offsets, deletion of records, producers, leader elections and reassignments."""
        from kafkalite_sdk.admin.partitions import Partitions

        return Partitions(self._driver)

    @cached_property
    def configs(self) -> "Configs":
        """Describe and change configs of topics, brokers and groups."""
        from kafkalite_sdk.admin.configs import Configs

        return Configs(self._driver)

    @cached_property
    def cluster(self) -> "Cluster":
        """Brokers, log directories and features."""
        from kafkalite_sdk.admin.cluster import Cluster

        return Cluster(self._driver)

    @cached_property
    def groups(self) -> "Groups":
        """List, describe, create and delete groups, remove members."""
        from kafkalite_sdk.admin.groups import Groups

        return Groups(self._driver)

    @cached_property
    def group_offsets(self) -> "GroupOffsets":
        """Read, set, rewind and delete the committed offsets of groups."""
        from kafkalite_sdk.admin.group_offsets import GroupOffsets

        return GroupOffsets(self._driver)

    @cached_property
    def acls(self) -> "Acls":
        """List, create and delete ACLs."""
        from kafkalite_sdk.admin.acls import Acls

        return Acls(self._driver)

    @cached_property
    def quotas(self) -> "Quotas":
        """Describe and change client quotas."""
        from kafkalite_sdk.admin.quotas import Quotas

        return Quotas(self._driver)

    @cached_property
    def tokens(self) -> "Tokens":
        """Create, renew, expire and describe delegation tokens."""
        from kafkalite_sdk.admin.tokens import Tokens

        return Tokens(self._driver)

    @cached_property
    def users(self) -> "Users":
        """Describe, set and delete the SCRAM credentials of users."""
        from kafkalite_sdk.admin.users import Users

        return Users(self._driver)

    @cached_property
    def transactions(self) -> "Transactions":
        """List, describe and end transactions, find those that hang."""
        from kafkalite_sdk.admin.transactions import Transactions

        return Transactions(self._driver)
