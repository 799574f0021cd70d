"""Describes and changes the configs of topics, brokers and groups, and the levels of loggers.

`config.describe_and_alter` validates the texts, the store makes a change durable, then it takes effect. Broker configs
that a request sets belong to this broker or, under the empty name, to all brokers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kafkalite.callbacks import SerialExecutor
from kafkalite.cluster.changes import Change, Refusal, RefusedError, run_change
from kafkalite.cluster.configs.writes import ConfigChange, Texts
from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.describe_and_alter import (
    Alteration,
    Setting,
    alter_broker,
    alter_group,
    alter_topic,
    check_broker_configs,
    check_topic_configs,
    describe_broker,
    describe_group,
    describe_topic,
)
from kafkalite.config.group import check_group_configs
from kafkalite.config.keys import ConfigError
from kafkalite.errors import KafkaErrorCode

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
ALL_BROKERS = ""
UNREADABLE = "in the coordination service cannot be read; the log of the broker has the reason"

ChangeDone = Callable[[Refusal | None], None]
TopicOverrides = Mapping[str, Texts | None]  # None: the configs of the topic cannot be read


class ConfiguredBroker(Protocol):
    """The broker as a holder of configs."""

    broker_id: int
    config: BrokerConfig
    group_configs: dict[str, dict[str, str]]
    topics: TopicManager

    @property
    def image(self) -> ClusterImage: ...

    def change_broker_configs(
        self, all_brokers: bool, change: ConfigChange, validate_only: bool, then: ChangeDone
    ) -> None: ...
    def log_levels_changed(self) -> None: ...
    def change_group_configs(self, group: str, change: ConfigChange, validate_only: bool, then: ChangeDone) -> None: ...


class TopicConfigReader(Protocol):
    """Reads the configs of topics from the tree of a cluster, whose image does not have them."""

    def read(self, topics: Sequence[str], then: Callable[[TopicOverrides], object]) -> None: ...


class ConfigResources:
    """The configs that this broker can describe and change.

    Attributes:
        reader: reads topic configs; None = they are in the image, of a broker that is alone.
    """

    def __init__(self, broker: ConfiguredBroker) -> None:
        self.reader: TopicConfigReader | None = None
        self._broker = broker
        self._serial = SerialExecutor()

    def read_topics(self, names: Iterable[str], then: Callable[[TopicOverrides], object]) -> None:
        """Call `then` with what `describe` needs to describe these topics; within the call if nothing is read."""
        topics = self._broker.image.topics
        found = [name for name in dict.fromkeys(names) if name in topics]
        if self.reader is not None and found:
            self.reader.read(found, then)
        else:
            then({name: topics[name].configs for name in found})

    def describe(self, kind: int, name: str, keys: Iterable[str] | None, topics: TopicOverrides) -> list[Setting]:
        """Return the configs of a resource: all, or those in `keys`. Raises RefusedError.

        Arguments:
            kind, name: of the resource.
            keys: None = all.
            topics: the configs of topics, of `read_topics`.
        """
        if kind == TOPIC:
            self._check_topic(name)
            overrides = topics.get(name, {})
            if overrides is None:
                raise RefusedError(KafkaErrorCode.INVALID_CONFIG, f"The configs of topic '{name}' {UNREADABLE}.")
            return describe_topic(self._broker.config, overrides, keys)
        if kind == GROUP:
            check_group(name)
            return describe_group(self._broker.config, self._broker.group_configs.get(name, {}), keys)
        if kind == BROKER_LOGGER:
            from kafkalite.server.configs.broker_loggers import describe_loggers

            return describe_loggers(self._broker.broker_id, name, keys)
        self._check_broker(kind, name)
        settings = describe_broker(self._broker.config, keys)
        if name == ALL_BROKERS:
            stored = self._broker.config.stored_texts(all_brokers=True)
            return [setting for setting in settings if setting.name in stored]
        return settings

    def alter(
        self, kind: int, name: str, alterations: Sequence[Alteration], validate_only: bool, then: ChangeDone
    ) -> None:
        """Apply operations to single configs (KIP-339).

        Arguments:
            kind: the resource type.
            name: of the resource.
            alterations: the operations in their order.
            validate_only: change nothing.
            then: called with None, or with the reason why nothing was changed.
        """
        if kind == BROKER_LOGGER:
            self._alter_loggers(name, alterations, validate_only, then)
            return
        all_brokers = name == ALL_BROKERS
        self._change(
            kind,
            name,
            lambda current: alter_topic(self._broker.config, known(current), alterations),
            lambda current: alter_broker(self._broker.config, known(current), alterations, all_brokers=all_brokers),
            lambda current: alter_group(self._broker.config, known(current), alterations),
            validate_only,
            then,
        )

    def _alter_loggers(
        self, name: str, alterations: Sequence[Alteration], validate_only: bool, then: ChangeDone
    ) -> None:
        from kafkalite.server.configs.broker_loggers import alter_loggers

        try:
            alter_loggers(self._broker.broker_id, name, alterations, validate_only)
        except RefusedError as error:
            then(error.refusal)
            return
        self._broker.log_levels_changed()
        then(None)

    def replace(
        self, kind: int, name: str, configs: Mapping[str, str | None], validate_only: bool, then: ChangeDone
    ) -> None:
        """Set a resource to exactly these configs (the older AlterConfigs).

        Arguments: as of `ConfigResources.alter`, but for `configs`: all values, None = the default.
        """
        all_brokers = name == ALL_BROKERS
        self._change(
            kind,
            name,
            lambda current: check_topic_configs(self._broker.config, configs, current or {}),
            lambda current: check_broker_configs(self._broker.config, configs, current or {}, all_brokers=all_brokers),
            lambda _current: check_group_configs(self._broker.config.values, configs),
            validate_only,
            then,
        )

    def _change(
        self,
        kind: int,
        name: str,
        of_topic: ConfigChange,
        of_broker: ConfigChange,
        of_group: ConfigChange,
        validate_only: bool,
        then: ChangeDone,
    ) -> None:
        if kind == TOPIC:
            self._broker.topics.configure(name, of_topic, validate_only=validate_only, then=then)
            return
        try:
            if kind == GROUP:
                check_group(name)
            else:
                self._check_broker(kind, name)
        except RefusedError as error:
            then(error.refusal)
            return
        change: Change = (
            partial(self._broker.change_group_configs, name, of_group, validate_only)
            if kind == GROUP
            else partial(self._broker.change_broker_configs, name == ALL_BROKERS, of_broker, validate_only)
        )
        run_change(self._serial, (kind, name), change, then)

    def _check_topic(self, name: str) -> None:
        if name not in self._broker.image.topics:
            raise RefusedError(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")

    def _check_broker(self, kind: int, name: str) -> None:
        own = str(self._broker.broker_id)
        if kind == BROKER_LOGGER:
            refused = "AlterConfigs does not change the levels of loggers (8); IncrementalAlterConfigs does."
            raise RefusedError(KafkaErrorCode.INVALID_REQUEST, refused)
        if kind != BROKER:
            raise RefusedError(
                KafkaErrorCode.INVALID_REQUEST,
                f"Resource type {kind} has no configs; supported: topics (2), brokers (4), loggers (8), groups (32).",
            )
        if name not in (own, ALL_BROKERS):
            raise RefusedError(
                KafkaErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own} or empty string, but received {name}",
            )


def check_group(name: str) -> None:
    """Check the name of a group, which need not exist; raises RefusedError."""
    if not name:
        raise RefusedError(KafkaErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def known(current: Texts | None) -> Texts:
    """The stored configs for a change of single ones; raises ConfigError if they cannot be read."""
    if current is None:
        raise ConfigError("", "single configs cannot be changed; AlterConfigs replaces all of them")
    return current
