"""Holds the configs of one topic as a frozen snapshot: the broker's defaults and the topic's own values.

A log holds its snapshot and gets a new one on change. Attributes have the names of Kafka's keys, with underscores.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalite.config.definitions import TOPIC_KEYS, nearest, refuse_unsafe
from kafkalite.config.keys import ConfigError, Key, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configs of a topic; the defaults here are Kafka's. Times are milliseconds, sizes bytes, -1 is no limit in
    most keys.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = 2**63 - 1
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def compacted(self) -> bool:
        """Whether the log is compacted."""
        return "compact" in self.cleanup_policy


def attribute(name: str) -> str:
    """Return the attribute of a key."""
    return name.replace(".", "_")


def parse_topic_value(name: str, text: str | None) -> Value:
    """Read a topic config; raises ConfigError for an unknown key, a wrong value or an unsupported one."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        near = nearest(name, TOPIC_KEYS)
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(name, f"Unknown topic config name: {name}{hint}")
    if text is None:
        raise ConfigError(name, f"Null value not supported for topic configs: {name}")
    value = key.parse(text)
    refuse_unsafe(name, text, value, key)
    return value


def build_topic_config(defaults: Mapping[str, Value], overrides: Mapping[str, str | None]) -> TopicConfig:
    """Build a snapshot.

    Arguments:
        defaults: value of every topic key from the broker's configs.
        overrides: texts set on the topic.
    Raises ConfigError.
    """
    values = dict(defaults)
    for name, text in overrides.items():
        values[name] = parse_topic_value(name, text)
    config = TopicConfig(**{attribute(name): value for name, value in values.items()})  # type: ignore[arg-type]
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) must not be above"
            f" max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )
    return config


def topic_default(key: Key, broker_values: Mapping[str, Value]) -> Value:
    """Return the value of a topic key that the topic does not set: the strongest synonym with a value."""
    for synonym in key.synonyms:
        value = broker_values[synonym.name]
        if value is not None:
            unlimited = isinstance(value, int) and value < 0
            return value if synonym.factor == 1 or unlimited else value * synonym.factor
    return key.default
