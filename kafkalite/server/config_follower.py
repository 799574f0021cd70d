"""Applies the configs of topics, brokers and groups that any broker of the cluster changes in the tree.

At the beginning of a session everything is read once: it may have changed while no session watched.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import unquote

from kafkalite.callbacks import gather
from kafkalite.clock import Clock, Outcome
from kafkalite.cluster.config_watcher import ConfigWatcher
from kafkalite.cluster.topic_writes import read_configs
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.group import check_group_configs
from kafkalite.config.keys import ConfigError
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.server.topic_reader import TopicReader

LOGGER = logging.getLogger("kafkalite.server")


class ConfiguredMember(Protocol):
    """The broker that the configs are for."""

    broker_id: int
    config: BrokerConfig
    group_configs: dict[str, dict[str, str]]

    @property
    def hosted_topics(self) -> Iterable[str]:
        """The topics with a partition on this broker."""

    def apply_configs(self, default: Mapping[str, str], own: Mapping[str, str]) -> None: ...
    def apply_group_configs(self, group: str, texts: Mapping[str, str]) -> None: ...
    def configure_topic(self, name: str, overrides: Mapping[str, str]) -> None: ...


class ConfigFollower:
    """Follows the configs during one session.

    Arguments:
        broker: applies them.
        session: with the coordination service.
        topics: reads those of topics.
        clock: for the age of notifications.
    """

    def __init__(self, broker: ConfiguredMember, session: Coordination, topics: TopicReader, clock: Clock) -> None:
        self._broker = broker
        self._session = session
        self._topics = topics
        self._closed = False
        self._watchers = [
            ConfigWatcher(session, clock, self._changed, self._read_brokers_and_topics),
            ConfigWatcher(session, clock, self._changed, self._read_groups, znodes.GROUP_CHANGES),
        ]

    def start(self) -> None:
        """Read everything, and watch."""
        for watcher in self._watchers:
            watcher.start()

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

    # Brokers and topics.

    def _read_brokers_and_topics(self) -> None:
        self._read_broker()
        for topic in list(self._broker.hosted_topics):
            self._read_topic(topic)

    def _read_topic(self, topic: str) -> None:
        def read(configs: Mapping[str, str]) -> None:
            if not self._closed:
                self._broker.configure_topic(topic, configs)

        self._topics.read_configs(topic, read)

    def _read_broker(self) -> None:
        paths = [znodes.broker_config_path(None), znodes.broker_config_path(self._broker.broker_id)]

        def read(outcomes: list[Outcome]) -> None:
            if self._closed:
                return
            failed = [each.error for each in outcomes if each.error is not None]
            if failed:  # the session is lost, and the next one reads again; or a node is invalid
                LOGGER.warning("the dynamic configs of this broker are unchanged: %s", failed[0])
            else:
                self._broker.apply_configs(*(outcome.value for outcome in outcomes))

        gather([partial(read_configs, self._session, path) for path in paths], read)

    # Groups.

    def _read_groups(self) -> None:
        """Read the configs of all groups; those that have none any more are known already."""

        def listed(outcome: Outcome) -> None:
            if self._closed:
                return
            if outcome.error is not None:  # the connection broke, and the next session reads again
                LOGGER.warning("the configs of groups are unchanged: %s", outcome.error)
                return
            for group in {*self._broker.group_configs, *map(znodes.group_of, outcome.value[0])}:
                self._read_group(group)

        self._session.children(znodes.GROUP_CONFIGS, listed)

    def _read_group(self, group: str) -> None:
        def read(outcome: Outcome) -> None:
            if self._closed:
                return
            error = outcome.error or refusal(self._broker.config, outcome.value)
            if error is not None:
                LOGGER.warning("the configs of group %r are unchanged: %s", group, error)
            else:
                self._broker.apply_group_configs(group, outcome.value)

        read_configs(self._session, znodes.group_config_path(group), read)


def refusal(config: BrokerConfig, texts: Mapping[str, str]) -> ConfigError | None:
    """The reason why a group cannot have these configs."""
    try:
        check_group_configs(config, texts)
    except ConfigError as error:
        return error
    return None
