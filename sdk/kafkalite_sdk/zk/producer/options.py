"""The settings of the producer of Kafka 0.8, with Java's names in underscores: honoured, or refused with a reason.

Pure. Sources: ProducerConfig.scala, AsyncProducerConfig.scala and SyncProducerConfig.scala of Kafka 0.8.2.2;
ProducerConfig.scala of Kafka 0.7 (`zk.connect`, `broker.list`).
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from kafkalite_sdk.client.arguments import INT32_MAX, integer, reject_unknown, text
from kafkalite_sdk.client.security import SECURITY_OPTIONS, SecurityOptions

CODECS = {"none": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4"}
CODEC_NUMBERS = ("none", "gzip", "snappy", "lz4")  # of CompressionCodec.scala
CONNECT_MS = 10_000

JAVA_CLASS = "a class of Java cannot be loaded; pass a function as {}"
REFUSED = {
    "serializer_class": JAVA_CLASS.format("serializer"),
    "key_serializer_class": JAVA_CLASS.format("key_serializer"),
    "partitioner_class": JAVA_CLASS.format("partitioner"),
    "compressed_topics": "a producer has one codec; use a Producer for each codec",
    "send_buffer_bytes": "the operating system sets the size of socket buffers",
    "bootstrap_servers": "it is broker_list or zk_connect here",
    "acks": "it is request_required_acks here",
    "linger_ms": "it is queue_buffering_max_ms here",
    "batch_size": "since Kafka 0.8 it is batch_num_messages",
    "queue_time": "since Kafka 0.8 it is queue_buffering_max_ms",
    "queue_size": "since Kafka 0.8 it is queue_buffering_max_messages",
    "queue_enqueueTimeout_ms": "since Kafka 0.8 it is queue_enqueue_timeout_ms",
    "zk_read_num_retries": "watches keep the brokers current, so nothing is read again",
    "zk_sessiontimeout_ms": "the session has no ephemeral nodes; its timeout is 18 s",
    "zk_connectiontimeout_ms": "connecting takes at most 10 s",
    "reconnect_interval": "connections are opened again when they are needed",
    "reconnect_time_interval_ms": "connections are opened again when they are needed",
    "socket_timeout_ms": "it is request_timeout_ms here",
    "connect_timeout_ms": "connecting takes at most 10 s",
    "max_message_size": "the broker has the limit (max.message.bytes of the topic)",
}


class ProducerOptions(SecurityOptions, total=False):
    """The keyword arguments of `Producer`, all optional, with those of `SecurityOptions`. Times are in ms.

    Attributes:
        producer_type: "sync" (default): `send` waits for the acknowledgements. "async": records wait in a queue.
        request_required_acks: 0 (default), 1 or -1 (all in-sync replicas).
        request_timeout_ms: deadline of a request (10,000).
        message_send_max_retries: retries of a record (3). It sets a time: a record fails when so many requests, with
            their pauses, could have timed out.
        retry_backoff_ms: pause before a retry (100).
        compression_codec: "none" (default), "gzip", "snappy" or "lz4", or its number in Kafka, 0 to 3.
        topic_metadata_refresh_interval_ms: metadata is requested again after this time, and records without a key get
            another partition (600,000); 0 = each record without a key gets its own; -1 = only after a failure.
        queue_buffering_max_ms: with "async", longest time in the queue (5,000).
        queue_buffering_max_messages: with "async", records that are not acknowledged (10,000).
        queue_enqueue_timeout_ms: with "async", how long `send` waits while so many are (-1 = no limit); 0 = it fails.
        batch_num_messages: with "async", number of records with which the queue is sent at once (200).
        client_id: sent with every request ("").
    """

    producer_type: Literal["sync", "async"]
    request_required_acks: Literal[-1, 0, 1]
    request_timeout_ms: int
    message_send_max_retries: int
    retry_backoff_ms: int
    compression_codec: Literal["none", "gzip", "snappy", "lz4", 0, 1, 2, 3]
    topic_metadata_refresh_interval_ms: int
    queue_buffering_max_ms: int
    queue_buffering_max_messages: int
    queue_enqueue_timeout_ms: int
    batch_num_messages: int
    client_id: str


class ProducerSettings(NamedTuple):
    """The settings of a producer.

    Attributes:
        servers: `bootstrap_servers` of the producer of the SDK.
        options: its keyword arguments.
        queued: whether records wait in a queue.
        queue_messages: largest number of records that are not acknowledged.
        enqueue_timeout_s: how long `send` waits for space; None = without limit.
        batch_messages: number of records with which the queue is sent at once.
        linger_s: longest time in the queue.
        partition_kept_s: how long records without a key keep a partition; below 0 = until a record has failed.
        metadata_timeout_s: longest wait for the partitions of a topic.
    """

    servers: str
    options: dict[str, Any]
    queued: bool
    queue_messages: int
    enqueue_timeout_s: float | None
    batch_messages: int
    linger_s: float
    partition_kept_s: float
    metadata_timeout_s: float


def parse_options(zk_connect: str | None, broker_list: str | None, options: ProducerOptions) -> ProducerSettings:
    """Check the arguments of a producer.

    Arguments:
        zk_connect: "host:port,host:port/chroot"; None = `broker_list` has the brokers.
        broker_list: "id:host:port,..." or "host:port,..."; None = `zk_connect` has them.
        options: the keyword arguments.

    Raises:
        TypeError: an option is unknown, or its value has another type.
        ValueError: a value is not valid, or an option is refused.
    """
    given = cast(Mapping[str, Any], options)
    for name in given:
        if name in REFUSED:
            raise ValueError(f"{name} is not supported: {REFUSED[name]}")
    reject_unknown("Producer", given, (*ProducerOptions.__annotations__, *SECURITY_OPTIONS))
    queued = _choice(given, "producer_type", "sync", ("sync", "async")) == "async"
    acks = _choice(given, "request_required_acks", 0, (-1, 0, 1))
    timeout_ms = integer("request_timeout_ms", given.get("request_timeout_ms", 10_000))
    backoff_ms = integer("retry_backoff_ms", given.get("retry_backoff_ms", 100), least=0)
    retries = integer("message_send_max_retries", given.get("message_send_max_retries", 3), least=0)
    refresh_ms = integer(
        "topic_metadata_refresh_interval_ms", given.get("topic_metadata_refresh_interval_ms", 600_000), least=-1
    )
    linger_ms = integer("queue_buffering_max_ms", given.get("queue_buffering_max_ms", 5_000), least=0)
    queue = integer("queue_buffering_max_messages", given.get("queue_buffering_max_messages", 10_000))
    batch = integer("batch_num_messages", given.get("batch_num_messages", 200))
    enqueue_ms = integer("queue_enqueue_timeout_ms", given.get("queue_enqueue_timeout_ms", -1), least=-1)
    if batch > queue:
        raise ValueError(f"batch_num_messages is {batch}, expected at most queue_buffering_max_messages ({queue})")
    linger_ms = linger_ms if queued else 0
    delivery_ms = linger_ms + (retries + 1) * timeout_ms + retries * backoff_ms
    of_sdk = {
        "acks": acks,
        "client_id": text("client_id", given.get("client_id", "")),
        "compression_type": _codec(given.get("compression_codec", "none")),
        "request_timeout_ms": timeout_ms,
        "retry_backoff_ms": backoff_ms,
        "retry_backoff_max_ms": max(backoff_ms, 1),
        "linger_ms": linger_ms,
        "delivery_timeout_ms": min(delivery_ms, INT32_MAX),
        "connect_timeout_ms": CONNECT_MS,
        "metadata_max_age_ms": refresh_ms if refresh_ms > 0 else INT32_MAX if refresh_ms < 0 else 300_000,
        **{name: given[name] for name in SECURITY_OPTIONS if name in given},
    }
    return ProducerSettings(
        _servers(zk_connect, broker_list),
        of_sdk,
        queued,
        queue,
        None if enqueue_ms < 0 else enqueue_ms / 1000,
        batch,
        linger_ms / 1000,
        refresh_ms / 1000,
        delivery_ms / 1000,
    )


def _choice(given: Mapping[str, Any], name: str, default: Any, allowed: tuple[Any, ...]) -> Any:
    value = given.get(name, default)
    if value not in allowed or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, expected {' or '.join(map(repr, allowed))}")
    return value


def _codec(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(CODEC_NUMBERS):
        return CODEC_NUMBERS[value]
    if isinstance(value, str) and value.lower() in CODECS:
        return CODECS[value.lower()]
    raise ValueError(f"compression_codec is {value!r}, expected {', '.join(CODECS)}, or 0 to 3")


def _servers(zk_connect: str | None, broker_list: str | None) -> str:
    if (zk_connect is None) == (broker_list is None):
        raise ValueError("expected zk_connect or broker_list, one of both")
    if zk_connect is not None:
        return f"zookeeper://{text('zk_connect', zk_connect)}"
    return ",".join(_brokers(text("broker_list", broker_list)))


def _brokers(brokers: str) -> list[str]:
    """Return HOST:PORT of each broker. Ids of brokers are not needed: the cluster reports them."""
    found, ids = [], set()
    for part in filter(None, (each.strip() for each in brokers.split(","))):
        first, _colon, rest = part.partition(":")
        if first.isdigit() and ":" in rest:
            if first in ids:
                raise ValueError(f"broker_list has the id {first} twice")
            ids.add(first)
            found.append(rest)
        else:
            found.append(part)
    if ids and len(ids) != len(found):
        raise ValueError(f"broker_list is {brokers!r}, expected an id for each broker or for none")
    if not found:
        raise ValueError(f'broker_list is {brokers!r}, expected "host:port,..." or "id:host:port,..."')
    return found
