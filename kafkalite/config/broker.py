"""Holds the configs of the broker as one frozen snapshot, with the origin of each value.

Dynamic configs of this broker override dynamic configs of all brokers; these override static ones (files, environment,
command line); these override Kafka's defaults.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, dataclass_transform

from kafkalite.config.definitions import (
    BROKER_KEYS,
    LISTENER_PREFIX,
    TOPIC_KEYS,
    dynamic_key,
    known_listener_key,
    nearest,
    refuse_unsafe,
)
from kafkalite.config.group import check_times
from kafkalite.config.keys import ConfigError, Support, Value
from kafkalite.config.kraft import check_quorum, entries, of_brokers
from kafkalite.config.listeners import (
    PLAINTEXT,
    check_additional_listeners,
    check_advertised,
    check_listener_names,
    check_ports,
    listener_between_brokers,
    listener_prefix,
    parse_listeners,
    parse_overrides,
    parse_protocol_map,
)
from kafkalite.config.table_groups import GROUP_TYPES, TIMES
from kafkalite.config.table_security import ENCODER_SECRET
from kafkalite.config.topic import (
    DELETION_KEYS,
    StoredTopicConfig,
    TopicConfig,
    build_topic_config,
    read_topic_config,
    topic_default,
)
from kafkalite.model import Endpoint, Principal

if TYPE_CHECKING:
    from kafkalite.config.passwords.stored import StoredPasswords
    from kafkalite.config.sasl import BrokerCredentials, SaslSettings
    from kafkalite.config.security import ListenerSecurity
    from kafkalite.config.zookeeper import ZooKeeperSecurity

ZOOKEEPER = ("zookeeper.", "kafkalite.zookeeper.")
PRINCIPAL_BUILDER = "principal.builder.class"

Config = TypeVar("Config")
FROM_ROW: Any = object()


def from_row(*, init: Literal[False] = False) -> Any:
    """Declare an attribute of a `snapshot` that has the value of the row with its name, dots for underscores.

    `init` is for type checkers: the constructor has no such argument.
    """
    return FROM_ROW


@dataclass_transform(frozen_default=True, field_specifiers=(field, from_row))
def snapshot(cls: type[Config]) -> type[Config]:
    """Return the class as a frozen dataclass, with the keys of the attributes declared by `from_row` in `row_names`.

    These attributes are no fields: dozens of fields would make the import of each start slower, and no comparison needs
    them. Raises TypeError for an attribute without a row.
    """
    names = {name: name.replace("_", ".") for name, value in vars(cls).items() if value is FROM_ROW}
    for name, key in names.items():
        if key not in BROKER_KEYS:
            raise TypeError(f"{cls.__name__}.{name}: no table has a row {key}")
        delattr(cls, name)
    cls.__annotations__ = {name: each for name, each in cls.__annotations__.items() if name not in names}
    cls.row_names = names  # type: ignore[attr-defined]
    return dataclass(frozen=True)(cls)


@snapshot
class BrokerConfig:
    """The configs of a broker.

    Arguments:
        static: texts by key, from files, environment and command line.
        dynamic_default: texts set by request for all brokers.
        dynamic: texts set by request for this broker.
        origins: the origin of static texts by key, for warnings: a file, a variable, an option.
        ignored_default, ignored: stored texts for all brokers and for this one that are not used (`config.stored`).
        passwords: decrypts the passwords among the stored texts; None: created from the static texts.
        undefined: the keys that a text would set that cannot be read, if they decide about the deletion of records.

    Attributes have the names of the honoured keys with underscores, in Kafka's units; `values` has the value of every
    known key. Raises ConfigError for a wrong value, for a contradiction, and for an unsupported key that safety depends
    on.
    """

    static: Mapping[str, str] = field(default_factory=dict, repr=False)  # texts may be passwords
    dynamic_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    ignored_default: Mapping[str, str] = field(default_factory=dict, repr=False)
    ignored: Mapping[str, str] = field(default_factory=dict, repr=False)
    undefined: frozenset[str] = frozenset()
    passwords: "StoredPasswords | None" = field(default=None, repr=False, compare=False)

    row_names: ClassVar[Mapping[str, str]]  # the keys of the attributes that are values of rows
    values: Mapping[str, Value] = field(init=False, repr=False, compare=False)
    synonyms: dict[tuple[str, bool], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # a cache
    topic_defaults: TopicConfig = field(init=False, repr=False, compare=False)
    broker_id: int = field(init=False, repr=False, compare=False)
    listeners: tuple[Endpoint, ...] = field(init=False, repr=False, compare=False)
    advertised_listeners: tuple[Endpoint, ...] = field(init=False, repr=False, compare=False)
    listener_between_brokers: str = field(init=False, repr=False, compare=False)
    log_dirs: tuple[str, ...] = field(init=False, repr=False, compare=False)
    super_users: tuple[Principal, ...] = field(init=False, repr=False, compare=False)
    max_connections_per_ip_overrides: Mapping[str, int] = field(init=False, repr=False, compare=False)
    topic_partition_count_map: Mapping[str, int] = field(init=False, repr=False, compare=False)

    authorizer_class_name: str = from_row()
    kafkalite_inter_broker_additional_listeners: tuple[str, ...] = from_row()
    allow_everyone_if_no_acl_found: bool = from_row()
    broker_rack: str | None = from_row()
    replica_selector_class: str | None = from_row()
    broker_id_generation_enable: bool = from_row()
    reserved_broker_max_id: int = from_row()
    inter_broker_listener_name: str | None = from_row()
    security_inter_broker_protocol: str = from_row()
    num_replica_fetchers: int = from_row()
    replica_fetch_max_bytes: int = from_row()
    replica_fetch_min_bytes: int = from_row()
    replica_fetch_wait_max_ms: int = from_row()
    replica_fetch_backoff_ms: int = from_row()
    replica_fetch_response_max_bytes: int = from_row()
    replica_socket_timeout_ms: int = from_row()
    controller_socket_timeout_ms: int = from_row()
    auto_leader_rebalance_enable: bool = from_row()
    leader_imbalance_check_interval_seconds: int = from_row()
    leader_imbalance_per_broker_percentage: int = from_row()
    controlled_shutdown_enable: bool = from_row()
    controlled_shutdown_max_retries: int = from_row()
    controlled_shutdown_retry_backoff_ms: int = from_row()
    zookeeper_connect: str | None = from_row()
    kafkalite_coordination_directory: str | None = from_row()
    zookeeper_session_timeout_ms: int = from_row()
    zookeeper_connection_timeout_ms: int | None = from_row()
    zookeeper_max_in_flight_requests: int = from_row()
    socket_request_max_bytes: int = from_row()
    socket_send_buffer_bytes: int = from_row()
    socket_receive_buffer_bytes: int = from_row()
    socket_listen_backlog_size: int = from_row()
    quota_window_num: int = from_row()
    quota_window_size_seconds: int = from_row()
    replication_quota_window_num: int = from_row()
    replication_quota_window_size_seconds: int = from_row()
    leader_replication_throttled_rate: int = from_row()
    follower_replication_throttled_rate: int = from_row()
    controller_quota_window_num: int = from_row()
    controller_quota_window_size_seconds: int = from_row()
    max_connection_creation_rate: int = from_row()
    max_connections: int = from_row()
    max_connections_per_ip: int = from_row()
    queued_max_request_bytes: int = from_row()
    connections_max_idle_ms: int = from_row()
    connection_failed_authentication_delay_ms: int = from_row()
    sasl_server_max_receive_size: int = from_row()
    delegation_token_secret_key: str | None = from_row()
    delegation_token_master_key: str | None = from_row()
    delegation_token_max_lifetime_ms: int = from_row()
    delegation_token_expiry_time_ms: int = from_row()
    delegation_token_expiry_check_interval_ms: int = from_row()
    kafkalite_delegation_token_max_per_owner: int = from_row()
    kafkalite_principal_max_connections: int = from_row()
    kafkalite_principal_max_fetch_sessions: int = from_row()
    kafkalite_principal_max_groups: int = from_row()
    kafkalite_principal_max_transactional_ids: int = from_row()
    kafkalite_principal_max_producer_ids: int = from_row()
    kafkalite_principal_max_queued_request_bytes: int = from_row()
    kafkalite_client_timeout_max_ms: int = from_row()
    num_partitions: int = from_row()
    default_replication_factor: int = from_row()
    auto_create_topics_enable: bool = from_row()
    delete_topic_enable: bool = from_row()
    log_retention_check_interval_ms: int = from_row()
    num_recovery_threads_per_data_dir: int = from_row()
    log_flush_offset_checkpoint_interval_ms: int = from_row()
    log_flush_start_offset_checkpoint_interval_ms: int = from_row()
    log_flush_scheduler_interval_ms: int = from_row()
    replica_high_watermark_checkpoint_interval_ms: int = from_row()
    kafkalite_retention_clock_jump_pause_ms: int = from_row()
    log_initial_task_delay_ms: int = from_row()
    log_cleaner_enable: bool = from_row()
    log_cleaner_threads: int = from_row()
    log_cleaner_dedupe_buffer_size: int = from_row()
    log_cleaner_io_buffer_size: int = from_row()
    log_cleaner_io_buffer_load_factor: float = from_row()
    log_cleaner_backoff_ms: int = from_row()
    log_cleaner_io_max_bytes_per_second: float = from_row()
    producer_id_expiration_ms: int = from_row()
    producer_id_expiration_check_interval_ms: int = from_row()
    offsets_topic_num_partitions: int = from_row()
    offsets_topic_replication_factor: int = from_row()
    offsets_topic_segment_bytes: int = from_row()
    offsets_topic_compression_codec: int = from_row()
    offsets_retention_minutes: int = from_row()
    offsets_retention_check_interval_ms: int = from_row()
    offsets_commit_timeout_ms: int = from_row()
    offsets_load_buffer_size: int = from_row()
    transactional_id_expiration_ms: int = from_row()
    transaction_max_timeout_ms: int = from_row()
    transaction_state_log_num_partitions: int = from_row()
    transaction_state_log_replication_factor: int = from_row()
    transaction_state_log_min_isr: int = from_row()
    transaction_state_log_segment_bytes: int = from_row()
    transaction_state_log_load_buffer_size: int = from_row()
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = from_row()
    transaction_remove_expired_transaction_cleanup_interval_ms: int = from_row()
    transaction_partition_verification_enable: bool = from_row()
    request_timeout_ms: int = from_row()
    add_partitions_to_txn_retry_backoff_ms: int = from_row()
    add_partitions_to_txn_retry_backoff_max_ms: int = from_row()
    replica_lag_time_max_ms: int = from_row()
    fetch_max_bytes: int = from_row()
    max_incremental_fetch_session_cache_slots: int = from_row()
    kafkalite_fetch_session_memory_max_bytes: int = from_row()
    max_request_partition_size_limit: int = from_row()
    group_min_session_timeout_ms: int = from_row()
    group_max_session_timeout_ms: int = from_row()
    group_initial_rebalance_delay_ms: int = from_row()
    group_max_size: int = from_row()
    kafkalite_group_member_memory_max_bytes: int = from_row()
    kafkalite_group_peer_timeout_ms: int = from_row()
    group_consumer_session_timeout_ms: int = from_row()
    group_consumer_min_session_timeout_ms: int = from_row()
    group_consumer_max_session_timeout_ms: int = from_row()
    group_consumer_heartbeat_interval_ms: int = from_row()
    group_consumer_min_heartbeat_interval_ms: int = from_row()
    group_consumer_max_heartbeat_interval_ms: int = from_row()
    group_consumer_max_size: int = from_row()
    group_consumer_assignment_interval_ms: int = from_row()
    group_consumer_regex_refresh_interval_ms: int = from_row()
    offset_metadata_max_bytes: int = from_row()
    group_coordinator_rebalance_protocols: tuple[str, ...] = from_row()
    group_consumer_assignors: tuple[str, ...] = from_row()
    group_consumer_migration_policy: str = from_row()

    def __post_init__(self) -> None:
        values = {name: key.default for name, key in BROKER_KEYS.items()}
        values.update(parse_broker_values(self.static))
        put = object.__setattr__
        if self.passwords is None and ENCODER_SECRET in self.static:
            from kafkalite.config.passwords.stored import stored_passwords  # few brokers set it

            put(self, "passwords", stored_passwords(values))
        for texts in (self.dynamic_default, self.dynamic):
            values.update(parse_dynamic_values(texts, self.passwords))
        put(self, "values", MappingProxyType(values))
        vars(self).update({name: values[key] for name, key in self.row_names.items()})
        put(self, "broker_id", self._read_broker_id())
        put(self, "log_dirs", self._read_log_dirs())
        check_quorum(self.static, self.values)
        self._read_listeners()
        self._read_authorizer()
        overrides = values["max.connections.per.ip.overrides"]
        assert isinstance(overrides, str)
        put(self, "max_connections_per_ip_overrides", MappingProxyType(parse_overrides(overrides)))
        put(self, "topic_partition_count_map", MappingProxyType(self._read_partition_counts()))
        self._check_queued()
        self._check_coordination()
        check_limits(self)
        defaults = {name: topic_default(key, values) for name, key in TOPIC_KEYS.items()}
        put(self, "topic_defaults", build_topic_config(defaults, {}, self.undefined_topic_keys))

    def check_topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Return the snapshot of a topic with these overrides of a request; raises ConfigError."""
        return build_topic_config(self.topic_values, overrides) if overrides else self.topic_defaults

    def stored_topic_config(self, texts: Mapping[str, str] | None) -> StoredTopicConfig:
        """Return the snapshot of a topic with these stored texts, and what of them is not used. It raises nothing.

        Arguments:
            texts: set on the topic; None: they cannot be read, so nothing of the topic is deleted.
        """
        if texts is not None and not texts:
            return StoredTopicConfig(self.topic_defaults)
        return read_topic_config(self.topic_values, self.undefined_topic_keys, texts)

    @cached_property
    def undefined_topic_keys(self) -> frozenset[str]:
        """The topic keys that decide about deletion and whose default cannot be read."""
        if not self.undefined:
            return self.undefined
        return frozenset(
            name
            for name in DELETION_KEYS
            if any(synonym.name in self.undefined for synonym in TOPIC_KEYS[name].synonyms)
        )

    def stored_texts(self, *, all_brokers: bool) -> dict[str, str]:
        """Return the stored texts of all brokers or of this one, those that are not used included."""
        if all_brokers:
            return {**self.dynamic_default, **self.ignored_default}
        return {**self.dynamic, **self.ignored}

    @cached_property
    def topic_values(self) -> Mapping[str, Value]:
        """Return the value of every topic key for a topic without overrides."""
        return {name: topic_default(key, self.values) for name, key in TOPIC_KEYS.items()}

    def without_effect(self) -> list[str]:
        """Return Kafka's keys that are set and have no effect, for one log line at start."""
        rows = {name: BROKER_KEYS[name] for name in self.static if name in BROKER_KEYS}
        return sorted(name for name, row in rows.items() if row.support is Support.WITHOUT_EFFECT)

    def unknown(self) -> list[tuple[str, str | None]]:
        """Return the unknown keys that are set, each with the most similar known key."""
        names = (name for name in sorted(self.static) if name not in BROKER_KEYS and name not in self.values)
        return [(name, nearest(name, BROKER_KEYS)) for name in names]

    def _read_broker_id(self) -> int:
        broker_id, node_id = self.values["broker.id"], self.values["node.id"]
        assert isinstance(broker_id, int) and isinstance(node_id, int)
        if "broker.id" in self.static and "node.id" in self.static and broker_id != node_id:
            raise ConfigError("broker.id", f"broker.id ({broker_id}) and node.id ({node_id}) must be equal")
        found = broker_id if "broker.id" in self.static else node_id
        if found < -1:
            raise ConfigError("broker.id", f"Invalid value {found} for configuration broker.id: expected -1 or more")
        return found

    @property
    def coordination(self) -> str | None:
        """The coordination service of the cluster, for messages; None = the broker is alone."""
        return self.zookeeper_connect or self.kafkalite_coordination_directory

    def _check_coordination(self) -> None:
        key, directory = "kafkalite.coordination.directory", self.kafkalite_coordination_directory
        if self.zookeeper_connect is not None and directory is not None:
            raise ConfigError(key, f"{key} and zookeeper.connect are set: a cluster has one of them")
        if any(name.startswith(ZOOKEEPER) for name in self.static):
            security = self.zookeeper_security
            if directory is not None:
                security.check_served(key)

    @cached_property
    def zookeeper_security(self) -> "ZooKeeperSecurity":
        """How the sessions with ZooKeeper are secured. Raises ConfigError."""
        from kafkalite.config.zookeeper import zookeeper_security  # for brokers of a cluster

        return zookeeper_security(self.values)

    def _check_queued(self) -> None:
        queued, largest = self.queued_max_request_bytes, self.socket_request_max_bytes
        if 0 < queued < largest:
            raise ConfigError(
                "queued.max.request.bytes",
                f"queued.max.request.bytes ({queued}) must not be below socket.request.max.bytes ({largest})",
            )

    def _read_partition_counts(self) -> dict[str, int]:
        text = self.values["topic.partition.count.map"]
        assert isinstance(text, str)
        if not text.strip():
            return {}
        from kafkalite.config.partition_counts import parse_partition_counts  # few brokers set it

        return parse_partition_counts(text)

    @property
    def limits_principals(self) -> bool:
        """Whether there is a limit of what one principal holds."""
        return any(value for name, value in self.values.items() if name.startswith("kafkalite.principal.max."))

    def _read_log_dirs(self) -> tuple[str, ...]:
        several, one = self.values["log.dirs"], self.values["log.dir"]
        assert isinstance(one, str)
        found = several if isinstance(several, tuple) else ("",) if "log.dirs" in self.static else (one,)
        if not all(found):
            raise ConfigError("log.dirs", "log.dirs: a directory name is empty")
        return found

    def _read_authorizer(self) -> None:
        name, super_users = self.authorizer_class_name, str(self.values["super.users"])
        principals: tuple[Principal, ...] = ()
        if name or super_users:
            from kafkalite.config.authorizer import check_authorizer_name, parse_super_users  # most brokers have none

            check_authorizer_name(name)
            principals = parse_super_users(super_users, any_type=bool(self.principal_builders()))
        object.__setattr__(self, "super_users", principals)

    def _read_listeners(self) -> None:
        pairs, bound, advertised_nodes = (
            self.values[name] for name in ("listener.security.protocol.map", "listeners", "advertised.listeners")
        )
        assert isinstance(pairs, tuple) and isinstance(bound, tuple)
        protocols = parse_protocol_map(pairs)
        check_listener_names(self.static, protocols)
        listeners = parse_listeners("listeners", of_brokers(bound, self.values), protocols)
        check_ports(listeners)
        advertised = parse_listeners(
            "advertised.listeners", of_brokers(entries(advertised_nodes), self.values), protocols
        )
        check_advertised(advertised, listeners)
        object.__setattr__(self, "listeners", listeners)
        object.__setattr__(self, "advertised_listeners", advertised)
        wanted, protocol = self.values["inter.broker.listener.name"], self.security_inter_broker_protocol
        assert wanted is None or isinstance(wanted, str)
        if wanted is not None and "security.inter.broker.protocol" in self.static:
            key = "security.inter.broker.protocol"
            raise ConfigError(key, f"{key} and inter.broker.listener.name are set: set one of them")
        object.__setattr__(self, "listener_between_brokers", listener_between_brokers(wanted, listeners, protocol))
        check_additional_listeners(self.kafkalite_inter_broker_additional_listeners, listeners)
        self.principal_builders()
        for endpoint in listeners:
            if endpoint.security_protocol != PLAINTEXT and self.listener_security(endpoint.listener).uses_sasl:
                self._check_sasl(endpoint.listener)

    @property
    def listeners_between_brokers(self) -> frozenset[str]:
        """The names of the listeners that serve requests between brokers."""
        return frozenset((self.listener_between_brokers, *self.kafkalite_inter_broker_additional_listeners))

    @property
    def exempt_listeners(self) -> frozenset[str]:
        """The names of the listeners without limits: those between brokers, if clients have a listener of their own.

        If all are between brokers, `listener_between_brokers` alone has no limits, unless it is the only one.
        """
        found, names = self.listeners_between_brokers, {each.listener for each in self.listeners}
        if names - found:
            return found
        return frozenset({self.listener_between_brokers}) if len(self.listeners) > 1 else frozenset()

    def _check_sasl(self, listener: str) -> None:
        """Raise ConfigError if the settings of a listener with SASL are wrong, or the brokers cannot log in to it."""
        self.sasl_settings(listener)
        if listener == self.listener_between_brokers and self.coordination is not None:
            self.broker_credentials()

    def broker_credentials(self) -> "BrokerCredentials":
        """Return the credentials with which this broker logs in to the others, whose listener has SASL."""
        from kafkalite.config.sasl import broker_credentials  # for brokers with SASL

        mechanism = str(self.values["sasl.mechanism.inter.broker.protocol"])
        return broker_credentials(self.sasl_settings(self.listener_between_brokers), mechanism)

    def principal_builders(self) -> dict[str, str]:
        """Return the entry points that build principals, by listener; those with Kafka's default are left out."""
        if not any(name.endswith(PRINCIPAL_BUILDER) for texts in self.levels for name in texts):
            return {}
        from kafkalite.config.extensions.principal_builders import principal_builders  # few brokers set it

        return principal_builders(self.values, [each.listener for each in self.listeners])

    @property
    def levels(self) -> tuple[Mapping[str, str], ...]:
        """The texts of the static and dynamic configs."""
        return self.static, self.dynamic_default, self.dynamic

    def sasl_settings(self, listener: str) -> "SaslSettings":
        """Return mechanisms, login modules and users of a listener with SASL, see `listener_security`."""
        from kafkalite.config.sasl import sasl_settings  # for brokers with SASL

        return sasl_settings(self.listener_security(listener))

    def has_default_security(self, listener: str) -> bool:
        """Whether a listener has neither TLS nor SASL nor limits of its own; without the import of its settings."""
        (endpoint,) = (each for each in self.listeners if each.listener == listener)
        limit = f"{listener_prefix(listener)}max.connections"
        return endpoint.security_protocol == PLAINTEXT and self.values.get(limit) is None

    def listener_security(self, listener: str) -> "ListenerSecurity":
        """Return how a listener is secured: protocol, SASL mechanisms, TLS settings, limits.

        Arguments:
            listener: its name in capitals.

        Raises:
            ConfigError: its settings contradict each other. Those of the static and dynamic configs were checked.
        """
        from kafkalite.config.security import listener_security  # for brokers with security

        (endpoint,) = (each for each in self.listeners if each.listener == listener)
        return listener_security(self.values, endpoint)


def parse_broker_values(texts: Mapping[str, str]) -> dict[str, Value]:
    """Return the values of the known keys; raises ConfigError. An empty text unsets a key that is unset by default."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        if not isinstance(text, str):  # of a program that is not checked by a type checker
            raise ConfigError(
                name, f"{name}: expected a string, got {text!r}; `setting_texts` converts numbers and lists"
            )
        key = BROKER_KEYS.get(name)
        if key is None and name.startswith(LISTENER_PREFIX):
            key = known_listener_key(name)
        if key is None:
            refuse_unsafe(name, text, None, None)
            continue
        value = None if key.default is None and not text.strip() else key.parse(text)
        refuse_unsafe(name, text, value, key)
        values[name] = value
    return values


def parse_dynamic_values(texts: Mapping[str, str], passwords: "StoredPasswords | None" = None) -> dict[str, Value]:
    """Return the values of dynamic configs; keys that are no dynamic configs are left out.

    Arguments:
        texts: by key; those of passwords are encrypted.
        passwords: decrypts them; None: the broker has no secret for them.

    Raises ConfigError: a value is invalid, or a password cannot be decrypted.

    Keys that a file may not have are parsed like others and change nothing: a client configures brokers of any version,
    and a stored key must not prevent a start. References such as `${file:...}` stay text (CVE-2024-31141).
    """
    values: dict[str, Value] = {}
    for name, text in texts.items():
        key = dynamic_key(name)
        if key is not None and key.sensitive:
            values[name] = decrypt_value(name, text, passwords)
        elif key is not None:
            values[name] = None if key.default is None and not text.strip() else key.parse(text)
    return values


def decrypt_value(name: str, text: str, passwords: "StoredPasswords | None") -> str | None:
    """Return a stored password, None for an empty one; raises ConfigError without a part of it."""
    if passwords is None:
        raise ConfigError(name, f"{name} is a password: set {ENCODER_SECRET} of the broker, which encrypts it")
    try:
        return passwords.decode(text) or None
    except ValueError as error:
        raise ConfigError(name, f"{name}: {error}") from None


# None may be above the next: the least, the one that holds and the greatest (GroupCoordinatorConfig.java); the wait of
# a follower's fetch, or fetches of idle followers would end without a response, and they would leave the ISR
# (KafkaConfig.scala).
IN_ORDER = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *(
        (f"group.{group_type}.min.{what}", f"group.{group_type}.{what}", f"group.{group_type}.max.{what}")
        for group_type in GROUP_TYPES
        for what, *_ in TIMES
    ),
    *(
        (f"group.share.min.{what}", f"group.share.{what}", f"group.share.max.{what}")
        for what in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks")
    ),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
)


def check_limits(config: BrokerConfig) -> None:
    """Raise ConfigError if limits of followers or groups contradict each other."""
    for less, more in itertools.chain.from_iterable(map(itertools.pairwise, IN_ORDER)):
        below, above = config.values[less], config.values[more]
        assert isinstance(below, int) and isinstance(above, int)
        if below > above:
            raise ConfigError(more, f"{more} ({above}) must not be below {less} ({below})")
    for group_type in GROUP_TYPES:
        check_times(
            config.values, f"group.{group_type}.session.timeout.ms", f"group.{group_type}.heartbeat.interval.ms"
        )
    protocols = config.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        name = "group.coordinator.rebalance.protocols"
        raise ConfigError(name, f"{name}: the classic protocol cannot be switched off")
    if not config.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors", "group.consumer.assignors must name at least one assignor")
