"""Reads what any broker changes in the tree: configs of topics, brokers and groups, client quotas, finalized features.

It hands them to the broker (`running/registered_broker`), which applies its own (`apply_configs`) and those of topics
(`configure_topic`: `hosting/assigned_partitions` replaces the config of each partition). `running/cluster_participant`
starts it with each session.

At the beginning of a session everything is read: it may have changed while no session watched. So it is when a
notification is missing or cannot be read. Reads are repeated until they have a result.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from kafkalite.callbacks import FanIn, gather
from kafkalite.clock import Clock, Outcome, Then
from kafkalite.cluster.configs.notifications import ConfigWatcher, Notifications
from kafkalite.cluster.configs.reads import Texts, read_configs, readable
from kafkalite.cluster.finalized_features import FeatureFollower
from kafkalite.cluster.metadata.image import ClusterTables
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, SessionExpiredError
from kafkalite.coordination.znodes.quotas import name_of, node_name
from kafkalite.server.configs.topic_reader import TopicReader
from kafkalite.slicing import Slicer

if TYPE_CHECKING:  # most brokers have none
    from kafkalite.cluster.configs.quota_follower import AppliedQuotas, QuotaFollower
    from kafkalite.cluster.credentials.store import ScramCredentials
    from kafkalite.cluster.tokens.store import DelegationTokens
    from kafkalite.server.security.authorization import AuditedAuthorizer

LOGGER = logging.getLogger("kafkalite.server")
ACLS, USERS, TOKENS = "ACLs", "users", "tokens"
RETRY_S = 0.5


class Watcher(Protocol):
    """Follows changes of one subject during a session."""

    def start(self) -> object: ...
    def close(self) -> object: ...


class ConfiguredBroker(Protocol):
    """The broker that the configs are for."""

    broker_id: int
    config: BrokerConfig
    group_configs: dict[str, dict[str, str]]
    tables: ClusterTables
    slicer: Slicer

    @property
    def authorizer(self) -> "AuditedAuthorizer | None":
        """The authorizer of all requests; None: they are all allowed."""

    @property
    def credentials(self) -> "ScramCredentials | None":
        """The credentials for logins; None: no listener offers SCRAM."""

    @property
    def tokens(self) -> "DelegationTokens | None":
        """The delegation tokens; None: they are disabled."""

    @property
    def quotas(self) -> "AppliedQuotas":
        """The client quotas that the broker enforces."""

    @property
    def hosted_topics(self) -> Iterable[str]:
        """The topics with a partition on this broker, and those that are being hosted."""

    def apply_configs(self, default: Texts | None, own: Texts | None) -> None: ...
    def apply_group_configs(self, group: str, texts: Texts) -> None: ...
    def configure_topic(self, name: str, overrides: Texts | None) -> None: ...


class ConfigFollower:
    """Follows the configs and the features during one session.

    Arguments:
        broker: applies them.
        session: with the coordination service.
        topics: reads those of topics.
        clock: for pauses.
    """

    def __init__(self, broker: ConfiguredBroker, session: Coordination, topics: TopicReader, clock: Clock) -> None:
        self._broker = broker
        self._session = session
        self._topics = topics
        self._clock = clock
        self._closed = False
        self._watchers: list[Watcher] = [
            ConfigWatcher(session, clock, self._changed, self._read_brokers_and_topics),
            ConfigWatcher(session, clock, self._changed, self._read_groups, Notifications(znodes.GROUP_CHANGES)),
            FeatureFollower(broker.tables.features, session, clock),
        ]

        self._unread = {ACLS, USERS, TOKENS}  # in this session
        self._then: Callable[[], object] = lambda: None
        acls = None if broker.authorizer is None else broker.authorizer.acls
        if acls is None:
            self._unread.remove(ACLS)
        else:
            from kafkalite.cluster.acls.follower import acl_follower  # most brokers have no ACLs

            self._watchers.append(acl_follower(acls, session, clock, partial(self._read, ACLS)))
        if broker.tokens is None:
            self._unread.remove(TOKENS)
        else:
            from kafkalite.cluster.tokens.follower import token_follower

            self._watchers.append(token_follower(broker.tokens, session, clock, partial(self._read, TOKENS)))
        if broker.credentials is None:
            self._unread.remove(USERS)
        self._quotas: QuotaFollower | None = None

    def start(self) -> None:
        """Read everything, and watch."""
        for watcher in self._watchers:
            watcher.start()

    def when_rights_known(self, then: Callable[[], object]) -> None:
        """Call `then` once ACLs, users and tokens were read in this session; at once on a broker without them."""
        if self._unread:
            self._then = then
        else:
            then()

    def _read(self, what: str) -> None:
        if what in self._unread and not self._closed:
            self._unread.remove(what)
            if not self._unread:
                self._then()

    def close(self) -> None:
        """Watch no more; what is still being read is not applied."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()

    def _changed(self, kind: str, name: str) -> None:
        """Read a changed entity, which is named as in the tree."""
        if kind == "topics":
            self._read_topic(unquote(name))
        elif kind == "brokers" and name in (znodes.ALL_BROKERS, str(self._broker.broker_id)):
            self._read_broker()
        elif kind == "groups":
            self._read_group(znodes.group_of(name))
        elif kind in ("users", "clients", "ips"):
            if kind == "users" and "/" not in name:
                self._read_user(name)
            self._follow_quotas().read_changed(kind, name)

    # Brokers and topics.

    def _read_brokers_and_topics(self) -> None:
        self._read_broker()
        for topic in list(self._broker.hosted_topics):
            self._read_topic(topic)
        self._read_users()
        self._follow_quotas().read_all()

    def _follow_quotas(self) -> "QuotaFollower":
        if self._quotas is None:
            from kafkalite.cluster.configs.quota_follower import QuotaFollower  # only brokers of a cluster follow

            self._quotas = QuotaFollower(
                self._broker.quotas, self._broker.slicer, self._session, self._until_read, self._read_texts
            )
        return self._quotas

    def _read_topic(self, topic: str) -> None:
        def read(configs: Texts | None) -> None:
            if not self._closed:
                self._broker.configure_topic(topic, configs)

        self._topics.read_configs(topic, read)

    def _read_broker(self) -> None:
        paths = [znodes.broker_config_path(None), znodes.broker_config_path(self._broker.broker_id)]
        gather([partial(self._read_texts, path) for path in paths], lambda found: self._broker.apply_configs(*found))

    # Users.

    def _read_users(self) -> None:
        """Read the credentials of all users; those that have no node any more are known already."""
        credentials = self._broker.credentials
        if credentials is None:
            return

        def listed(outcome: Outcome) -> None:
            if isinstance(outcome.error, CoordinationError):
                LOGGER.error("the credentials of users are unchanged: %s", outcome.error)
                return
            nodes = {*map(node_name, credentials.users()), *outcome.result()[0]}
            read: FanIn[None] = FanIn(len(nodes), lambda _all: self._read(USERS))
            for index, name in enumerate(nodes):
                self._read_user(name, partial(read.put, index, None))

        self._until_read(partial(self._session.children, znodes.USER_CONFIGS), listed)

    def _read_user(self, node: str, then: Callable[[], object] = lambda: None) -> None:
        credentials, user = self._broker.credentials, name_of(node)
        if credentials is None or user is None:
            then()
            return

        def read(texts: Texts | None) -> None:
            credentials.apply(user, texts)
            then()

        self._read_texts(f"{znodes.USER_CONFIGS}/{node}", read)

    # Groups.

    def _read_groups(self) -> None:
        """Read the configs of all groups; those that have none any more are known already."""

        def listed(outcome: Outcome) -> None:
            if isinstance(outcome.error, CoordinationError):
                LOGGER.error("the configs of groups are unchanged: %s", outcome.error)
                return
            for group in {*self._broker.group_configs, *map(znodes.group_of, outcome.result()[0])}:
                self._read_group(group)

        self._until_read(partial(self._session.children, znodes.GROUP_CONFIGS), listed)

    def _read_group(self, group: str) -> None:
        def read(texts: Texts | None) -> None:
            if texts is not None:  # else they are unchanged
                self._broker.apply_group_configs(group, texts)

        self._read_texts(znodes.group_config_path(group), read)

    def _read_texts(self, path: str, then: Callable[[Texts | None], object]) -> None:
        """Read a config node; None = its configs cannot be read, which is logged."""
        self._until_read(partial(read_configs, self._session, path), lambda outcome: then(readable(outcome, path)))

    def _until_read(self, call: Callable[[Then], object], then: Then) -> None:
        """Repeat a read while the service is out of reach; the next session reads everything again."""

        def ended(outcome: Outcome) -> None:
            if self._closed or isinstance(outcome.error, SessionExpiredError):
                return
            if isinstance(outcome.error, ConnectionLossError):
                self._clock.call_at(self._clock.monotonic() + RETRY_S, self._until_read, call, then)
            else:
                then(outcome)

        if not self._closed:
            call(ended)
