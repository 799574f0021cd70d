"""Holds the configs of one topic as a frozen snapshot: the broker's defaults and the topic's own values.

A log holds its snapshot and gets a new one on change. Attributes have the names of Kafka's keys, with underscores.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kafkalite.config.definitions import ACCEPTED_TOPIC_KEYS, TOPIC_KEYS, did_you_mean, nearest, refuse_unsafe
from kafkalite.config.keys import ConfigError, Key, Value, valid_texts

# The keys that decide about the deletion of records: by retention, by compaction, or as the timestamps that retention
# compares. While one of them cannot be read, nothing of the topic is deleted.
DELETION_KEYS = (
    "cleanup.policy",
    "delete.retention.ms",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
)
# Unknown keys that begin so may decide about it in another version.
DELETION_PREFIXES = (
    "cleanup.",
    "delete.",
    "kafkalite.",
    "local.retention.",
    "max.compaction.",
    "min.compaction.",
    "retention.",
)
RETENTION_POLICY = "kafkalite.retention.policy"  # it only deletes more, so its absence must not stop Kafka's rules
LAGS = frozenset(("min.compaction.lag.ms", "max.compaction.lag.ms"))
THROTTLED = frozenset(("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"))


Config = TypeVar("Config")
OF_ROW: Any = object()  # the default of an attribute is that of its row


def with_defaults_of_rows(cls: type[Config]) -> type[Config]:
    """Return the class with the defaults of the rows as its own; raises TypeError for an attribute or a row without its
    counterpart.
    """
    rows = {attribute(name): key.default for name, key in TOPIC_KEYS.items()}
    names = {name for name, value in vars(cls).items() if value is OF_ROW}
    if unpaired := names ^ rows.keys():
        raise TypeError(f"{cls.__name__} and the rows of topic keys differ in {', '.join(sorted(unpaired))}")
    for name, default in rows.items():
        setattr(cls, name, default)
    return cls


def attribute(name: str) -> str:
    """Return the attribute of a key."""
    return name.replace(".", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
@with_defaults_of_rows
class TopicConfig:
    """The configs of a topic; the defaults are those of the rows. Times are in ms, sizes in bytes, -1 is no limit in
    most keys.

    `unreadable` has the keys that decide about deletion and cannot be read: while there are any, nothing of the topic
    is deleted or compacted.
    """

    unreadable: tuple[str, ...] = ()

    cleanup_policy: tuple[str, ...] = OF_ROW
    compression_gzip_level: int = OF_ROW
    compression_lz4_level: int = OF_ROW
    compression_type: str = OF_ROW
    compression_zstd_level: int = OF_ROW
    delete_retention_ms: int = OF_ROW
    errors_deadletterqueue_group_enable: bool = OF_ROW
    file_delete_delay_ms: int = OF_ROW
    flush_messages: int = OF_ROW
    flush_ms: int = OF_ROW
    follower_replication_throttled_replicas: tuple[str, ...] = OF_ROW
    index_interval_bytes: int = OF_ROW
    kafkalite_retention_policy: str = OF_ROW
    leader_replication_throttled_replicas: tuple[str, ...] = OF_ROW
    local_retention_bytes: int = OF_ROW
    local_retention_ms: int = OF_ROW
    max_compaction_lag_ms: int = OF_ROW
    max_decompressed_message_bytes: int = OF_ROW
    max_message_bytes: int = OF_ROW
    message_timestamp_after_max_ms: int = OF_ROW
    message_timestamp_before_max_ms: int = OF_ROW
    message_timestamp_type: str = OF_ROW
    min_cleanable_dirty_ratio: float = OF_ROW
    min_compaction_lag_ms: int = OF_ROW
    min_insync_replicas: int = OF_ROW
    preallocate: bool = OF_ROW
    remote_log_copy_disable: bool = OF_ROW
    remote_copy_lag_bytes: int = OF_ROW
    remote_copy_lag_ms: int = OF_ROW
    remote_log_delete_on_disable: bool = OF_ROW
    remote_storage_enable: bool = OF_ROW
    retention_bytes: int = OF_ROW
    retention_ms: int = OF_ROW
    segment_bytes: int = OF_ROW
    segment_index_bytes: int = OF_ROW
    segment_jitter_ms: int = OF_ROW
    segment_ms: int = OF_ROW
    unclean_leader_election_enable: bool = OF_ROW

    @property
    def compacted(self) -> bool:
        """Whether the log is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def may_be_compacted(self) -> bool:
        """Whether the log is compacted, or may have been: its cleanup.policy cannot be read."""
        return self.compacted or any(name.startswith("cleanup.") for name in self.unreadable)


def parse_topic_value(name: str, text: str | None) -> Value:
    """Read a topic config; raises ConfigError for an unknown key, a wrong value or an unsupported one."""
    key = ACCEPTED_TOPIC_KEYS.get(name)
    if key is None:
        raise ConfigError(name, f"Unknown topic config name: {name}{did_you_mean(name, TOPIC_KEYS)}")
    if text is None:
        raise ConfigError(name, f"Null value not supported for topic configs: {name}")
    value = key.parse(text)
    refuse_unsafe(name, text, value, key)
    if name in THROTTLED and isinstance(value, tuple):
        check_throttled_replicas(name, text, value)
    if name == RETENTION_POLICY and value:
        from kafkalite.config.retention_policies import check_policy_name  # few topics have one

        check_policy_name(str(value))
    return value


def check_throttled_replicas(name: str, text: str, replicas: tuple[str, ...]) -> None:
    """Raise ConfigError unless a list is `*` or has numbers PARTITION:BROKER (Kafka: ThrottledReplicaListValidator)."""
    numbers = [number for replica in replicas for number in replica.split(":")]
    are_numbers = all(number.isascii() and number.isdecimal() for number in numbers)
    pairs = are_numbers and all(replica.count(":") == 1 for replica in replicas)
    if replicas != ("*",) and not pairs:
        raise ConfigError(name, f"Invalid value {text} for configuration {name}: allowed is * or PARTITION:BROKER,...")


def build_topic_config(
    defaults: Mapping[str, Value], overrides: Mapping[str, str | None], unreadable: Collection[str] = ()
) -> TopicConfig:
    """Build a snapshot.

    Arguments:
        defaults: value of every topic key from the broker's configs.
        overrides: texts set on the topic.
        unreadable: the keys that decide about deletion and cannot be read.
    Raises ConfigError.
    """
    values = dict(defaults)
    for name, text in overrides.items():
        value = parse_topic_value(name, text)
        if name in TOPIC_KEYS:  # others have no effect
            values[name] = value
    config = snapshot(values, unreadable)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) must not be above"
            f" max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )
    return config


def snapshot(values: Mapping[str, Value], unreadable: Collection[str]) -> TopicConfig:
    """Return the snapshot with these values by key."""
    attributes = {attribute(name): value for name, value in values.items()}
    return TopicConfig(**attributes, unreadable=tuple(sorted(unreadable)))  # type: ignore[arg-type]


class StoredTopicConfig(NamedTuple):
    """The snapshot of stored configs, and a line for each that is not used."""

    config: TopicConfig
    problems: tuple[str, ...] = ()


def read_topic_config(
    defaults: Mapping[str, Value], undefined: Collection[str], texts: Mapping[str, str] | None
) -> StoredTopicConfig:
    """Read the stored configs of a topic key by key: what is invalid or unknown is left out. It raises nothing.

    Arguments:
        defaults: value of every topic key from the broker's configs.
        undefined: the topic keys whose default cannot be read.
        texts: set on the topic; None: they cannot be read.
    """
    valid, problems = valid_texts(texts or {}, parse_topic_value)
    unreadable = {name for name in DELETION_KEYS if texts is None or (name in undefined and name not in valid)}
    unreadable.update(name for name in texts or () if name not in valid and decides_about_deletion(name))
    try:
        config = build_topic_config(defaults, valid, unreadable)
    except ConfigError as error:  # the only ones that are compared with each other
        problems.append(str(error))
        valid = {name: text for name, text in valid.items() if name not in LAGS}
        values = {**defaults, **{name: TOPIC_KEYS[name].default for name in LAGS}}
        config = build_topic_config(values, valid, unreadable | LAGS)
    return StoredTopicConfig(config, tuple(problems))


def decides_about_deletion(name: str) -> bool:
    """Return whether a key decides about the deletion of records; an unknown one may by its name."""
    if name in ACCEPTED_TOPIC_KEYS:
        return name in DELETION_KEYS
    return name.startswith(DELETION_PREFIXES) or nearest(name, DELETION_KEYS) is not None


def topic_default(key: Key, broker_values: Mapping[str, Value]) -> Value:
    """Return the value of a topic key that the topic does not set: the strongest synonym with a value."""
    for synonym in key.synonyms:
        value = broker_values[synonym.name]
        if value is not None:
            unlimited = isinstance(value, int) and value < 0
            return value if synonym.factor == 1 or unlimited else value * synonym.factor
    return key.default
