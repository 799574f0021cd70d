"""The options of `ConsumerConnector`: Java's names with underscores, and Java's defaults.

Pure. Source: ConsumerConfig.scala of Apache Kafka 1.1.1.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from kafkalite.coordination.znodes.consumers import Registration
from kafkalite_sdk.client.arguments import boolean, integer, reject_unknown, seconds, seconds_above_0, text
from kafkalite_sdk.client.security import SecurityOptions
from kafkalite_sdk.consumer.settings import ConsumerOptions
from kafkalite_sdk.zk.membership.settings import MembershipSettings

ZOOKEEPER, KAFKA = STORAGES = ("zookeeper", "kafka")
RESET_POLICIES = {"smallest": "earliest", "largest": "latest"}


class ConnectorOptions(SecurityOptions, total=False):
    """The keyword arguments of `ConsumerConnector`, with those of `SecurityOptions` for the brokers. Times are ms.

    Attributes:
        consumer_id: a text in place of the generated part of the id, `GROUP_TEXT`; two consumers must not share it.
        client_id: the name of the client in logs and quotas of the broker (the group).
        socket_timeout_ms: deadline of a request (30,000); at least `fetch_wait_max_ms`.
        fetch_message_max_bytes: of a partition in one response (1 MiB).
        fetch_min_bytes, fetch_wait_max_ms: a broker waits for that many bytes, up to that time (1, 100).
        refresh_leader_backoff_ms: pause before metadata and fetches are repeated (200).
        auto_commit_enable, auto_commit_interval_ms: commit what the streams have returned (True, 60,000).
        auto_offset_reset: without a valid offset, "largest" (default) or "smallest".
        consumer_timeout_ms: a stream without a record for this time raises ConsumerTimeoutError; -1 = never (default).
        offsets_storage: "zookeeper" (default) or "kafka".
        dual_commit_enabled: with offsets_storage="kafka", commit to ZooKeeper, too (True).
        offsets_commit_max_retries: of each commit (5).
        offsets_channel_backoff_ms, offsets_channel_socket_timeout_ms: between attempts, and of one (1,000, 10,000).
        partition_assignment_strategy: "range" (default) or "roundrobin", as the whole group.
        round_robin_release: of kafkalite: the release whose order of partitions "roundrobin" has: "1.1" (default), or
            "0.10" for groups with consumers of Kafka 0.10.2 and before.
        exclude_internal_topics: patterns do not match internal topics (True).
        rebalance_max_retries, rebalance_backoff_ms: of a rebalance (4; `zookeeper_sync_time_ms`).
        zookeeper_session_timeout_ms: the session ends without a sign of life for this time (6,000).
        zookeeper_connection_timeout_ms: longest wait for the first session (the session timeout).
        zookeeper_sync_time_ms: the default of `rebalance_backoff_ms` (2,000).
        zookeeper_config: of kafkalite: a file with the settings of a broker for the session: zookeeper.ssl.*,
            kafkalite.zookeeper.digest.file, zookeeper.set.acl.
        num_consumer_fetchers, queued_max_message_chunks, socket_receive_buffer_bytes: only Java's defaults are
            accepted (1, 2, 65,536): one event loop fetches from all brokers, and memory is bounded in bytes.
    """

    consumer_id: str
    client_id: str
    socket_timeout_ms: float
    fetch_message_max_bytes: int
    fetch_min_bytes: int
    fetch_wait_max_ms: float
    refresh_leader_backoff_ms: float
    auto_commit_enable: bool
    auto_commit_interval_ms: float
    auto_offset_reset: str
    consumer_timeout_ms: float
    offsets_storage: str
    dual_commit_enabled: bool
    offsets_commit_max_retries: int
    offsets_channel_backoff_ms: float
    offsets_channel_socket_timeout_ms: float
    partition_assignment_strategy: str
    round_robin_release: str
    exclude_internal_topics: bool
    rebalance_max_retries: int
    rebalance_backoff_ms: float
    zookeeper_session_timeout_ms: float
    zookeeper_connection_timeout_ms: float
    zookeeper_sync_time_ms: float
    zookeeper_config: str | None
    num_consumer_fetchers: int
    queued_max_message_chunks: int
    socket_receive_buffer_bytes: int


FIXED = {
    "num_consumer_fetchers": (1, "one event loop fetches from all brokers at once"),
    "queued_max_message_chunks": (2, "records that are fetched in advance are bounded in bytes"),
    "socket_receive_buffer_bytes": (65_536, "the operating system chooses the size of socket buffers"),
}


class ConnectorSettings(NamedTuple):
    """The options, validated; times in seconds unless the name says ms.

    Attributes:
        membership: of the machine, without its subscription and the id of the consumer.
        consumer_id: the given text, "" = generate one.
        storage: of the offsets, see STORAGES.
        dual_commit: whether ZooKeeper gets the offsets, too.
        offsets_timeout_s: of one commit or read.
        stream_timeout_s: of the wait for a record; None = no limit.
        session_timeout_ms: to ask for.
        connection_timeout_s: of the first session.
        zookeeper_config: file with the security of the session.
        reset: "earliest" or "latest".
        fetch: options of the SDK's consumer.
        client: those that its other clients have, too.
    """

    membership: MembershipSettings
    consumer_id: str
    storage: str
    dual_commit: bool
    offsets_timeout_s: float
    stream_timeout_s: float | None
    session_timeout_ms: int
    connection_timeout_s: float
    zookeeper_config: str | None
    reset: str
    fetch: ConsumerOptions
    client: Mapping[str, Any]


def connector_settings(group_id: str, options: ConnectorOptions) -> ConnectorSettings:
    """Validate the options.

    Raises: TypeError for an option that does not exist or has another type, ValueError for a value that is not valid.
    """
    reject_unknown("ConsumerConnector", options, ConnectorOptions.__annotations__)
    given = cast(dict[str, Any], options)
    for name, (value, reason) in FIXED.items():
        if given.get(name, value) != value:
            raise ValueError(f"{name} is {given[name]!r}, but has no effect here: {reason}; leave it out")
    session_ms = _ms("zookeeper_session_timeout_ms", given, 6_000)
    storage, dual_commit = _storage(given)
    client = _client(group_id, given)
    return ConnectorSettings(
        membership=_membership(group_id, given),
        consumer_id=text("consumer_id", given.get("consumer_id", "")),
        storage=storage,
        dual_commit=dual_commit,
        offsets_timeout_s=_ms("offsets_channel_socket_timeout_ms", given, 10_000) / 1000,
        stream_timeout_s=_stream_timeout_s(given.get("consumer_timeout_ms", -1)),
        session_timeout_ms=int(session_ms),
        connection_timeout_s=_ms("zookeeper_connection_timeout_ms", given, session_ms) / 1000,
        zookeeper_config=given.get("zookeeper_config"),
        reset=_named("auto_offset_reset", given.get("auto_offset_reset", "largest"), RESET_POLICIES),
        fetch=_fetch(given, client),
        client=client,
    )


def _ms(name: str, given: Mapping[str, Any], default: float) -> float:
    return seconds_above_0(name, given.get(name, default)) * 1000


def _named(name: str, value: object, allowed: Mapping[str, str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")
    return allowed[value]


def _storage(given: Mapping[str, Any]) -> tuple[str, bool]:
    storage = _named(
        "offsets_storage", given.get("offsets_storage", ZOOKEEPER), dict(zip(STORAGES, STORAGES, strict=True))
    )
    dual_commit = boolean("dual_commit_enabled", given.get("dual_commit_enabled", storage == KAFKA))
    if dual_commit and storage != KAFKA:
        raise ValueError('dual_commit_enabled is True, which needs offsets_storage="kafka"')
    return storage, dual_commit


def _stream_timeout_s(value: object) -> float | None:
    return None if value == -1 else seconds("consumer_timeout_ms", value)


def _membership(group_id: str, given: Mapping[str, Any]) -> MembershipSettings:
    interval_s = _ms("auto_commit_interval_ms", given, 60_000) / 1000
    sync_ms = _ms("zookeeper_sync_time_ms", given, 2_000)
    automatic = boolean("auto_commit_enable", given.get("auto_commit_enable", True))
    return MembershipSettings(
        text("group_id", group_id),
        consumer_id="",
        subscription=Registration({}),
        strategy=text("partition_assignment_strategy", given.get("partition_assignment_strategy", "range")),
        round_robin_release=text("round_robin_release", given.get("round_robin_release", "1.1")),
        excludes_internal=boolean("exclude_internal_topics", given.get("exclude_internal_topics", True)),
        rebalance_retries=integer("rebalance_max_retries", given.get("rebalance_max_retries", 4)),
        rebalance_backoff_s=_ms("rebalance_backoff_ms", given, sync_ms) / 1000,
        auto_commit_interval_s=interval_s if automatic else None,
        commit_retries=integer("offsets_commit_max_retries", given.get("offsets_commit_max_retries", 5), least=0),
        commit_backoff_s=_ms("offsets_channel_backoff_ms", given, 1_000) / 1000,
    )


def _client(group_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    socket_ms, wait_ms = _ms("socket_timeout_ms", given, 30_000), _ms("fetch_wait_max_ms", given, 100)
    if wait_ms > socket_ms:
        raise ValueError(f"socket_timeout_ms is {socket_ms:g}, expected at least fetch_wait_max_ms, {wait_ms:g}")
    backoff_ms = _ms("refresh_leader_backoff_ms", given, 200)
    security = {name: given[name] for name in SecurityOptions.__annotations__ if name in given}
    return {
        "client_id": text("client_id", given.get("client_id", group_id)),
        "request_timeout_ms": socket_ms,
        "retry_backoff_ms": backoff_ms,
        "retry_backoff_max_ms": max(backoff_ms, 1_000),
        **security,
    }


def _fetch(given: Mapping[str, Any], client: Mapping[str, Any]) -> ConsumerOptions:
    fetch: dict[str, Any] = {
        **client,
        "max_partition_fetch_bytes": integer("fetch_message_max_bytes", given.get("fetch_message_max_bytes", 1 << 20)),
        "fetch_min_bytes": integer("fetch_min_bytes", given.get("fetch_min_bytes", 1)),
        "fetch_max_wait_ms": _ms("fetch_wait_max_ms", given, 100),
        "auto_offset_reset": _named("auto_offset_reset", given.get("auto_offset_reset", "largest"), RESET_POLICIES),
    }
    return cast(ConsumerOptions, fetch)
