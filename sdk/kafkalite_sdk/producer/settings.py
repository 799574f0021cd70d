"""The settings of a producer: keyword arguments under Java's names, their checks, and the values that its parts use.

Pure. Times of arguments are in ms, times of the parsed settings in seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from kafkalite_sdk.client import arguments
from kafkalite_sdk.client.arguments import reject_positional, reject_unknown
from kafkalite_sdk.client.security import SECURITY_OPTIONS, Security, SecurityOptions, parse_security
from kafkalite_sdk.client.settings import ClientSettings, parse_servers

ALL = -1
INT32_MAX = 0x7FFFFFFF
MAX_IN_FLIGHT_IDEMPOTENT = 5  # batches of a producer that a broker remembers per partition

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}  # -1 = default of zlib; CompressionType.java

OFFLOAD_BYTES = {"gzip": 32 << 10, "snappy": 256 << 10, "lz4": 256 << 10, "zstd": 128 << 10}
"""Batches of this size take about 0.5 ms to compress; larger ones are compressed in a thread."""

Partitioner = Callable[[bytes | None, bytes | None, Sequence[int], Sequence[int]], int]
"""Returns the partition of a record; receives key, value, all partitions, and those with a leader."""


class ProducerOptions(SecurityOptions, total=False):
    """The keyword arguments of a `Producer`, all optional, with those of `SecurityOptions`. Times are in ms.

    Attributes:
        client_id: sent with every request (default "kafkalite").
        acks: "all" (default; -1), 1 or 0: which replicas acknowledge a record.
        enable_idempotence: the broker removes duplicates of retries. Default: on with acks="all", off otherwise.
        linger_ms: how long a batch waits for more records, from its first one (5).
        batch_size: largest batch before compression (131,072). A larger record is a batch of its own.
        buffer_memory: `send` fails while this many bytes are not acknowledged (33,554,432).
        max_request_size: largest record, and size of a request above which no further batch is added (1,048,576).
        max_in_flight: open requests per broker (5), in order; at most 5 with idempotence.
        delivery_timeout_ms: from `send` until a record that is not acknowledged fails (120,000). A record whose request
            is open at that time fails with the request.
        request_timeout_ms: deadline of a request (30,000).
        close_timeout_ms: longest time that `close` and the end of `async with` wait for acknowledgements (15,000);
            records without one fail then.
        max_block_ms: longest time that `drain` waits, and that records wait for the metadata of their topic (60,000).
        compression_type: "none" (default), "gzip", "snappy", "lz4" or "zstd".
        compression_level: of gzip (1 to 9), lz4 (1 to 17) or zstd (-131,072 to 22). Default: that of Kafka.
        partitioner: "murmur2" (default, as Java), "crc32" (as librdkafka), or a function of key, value, partitions and
            available partitions. The first two keep records without a key in one partition for `batch_size` bytes.
        allow_auto_create_topics: a broker may create a topic that does not exist (True). False = its records fail.
        metadata_max_age_ms: metadata is requested again after this time (300,000).
        metadata_max_idle_ms: a topic without records for this time is forgotten (300,000), with the next metadata.
        connections_max_idle_ms: an unused connection is closed after this time (540,000).
        connect_timeout_ms: deadline for connecting to a broker (10,000).
        default_api_timeout_ms: deadline of `start` (60,000).
        retry_backoff_ms, retry_backoff_max_ms: pause before a retry, doubled with each failure (100, 1,000).
        transactional_id: name of the producer for transactions; of two producers with one name the older is fenced.
            Without it there are no transactions.
        transaction_timeout_ms: the coordinator aborts a transaction that is open for longer (60,000); at most
            `transaction.max.timeout.ms` of the broker.
    """

    client_id: str
    acks: Literal["all", -1, 0, 1, "-1", "0", "1"]
    enable_idempotence: bool
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_request_size: int
    max_in_flight: int
    delivery_timeout_ms: float
    request_timeout_ms: float
    close_timeout_ms: float
    max_block_ms: float
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_level: int
    partitioner: Literal["murmur2", "crc32"] | Partitioner
    allow_auto_create_topics: bool
    metadata_max_age_ms: float
    metadata_max_idle_ms: float
    connections_max_idle_ms: float
    connect_timeout_ms: float
    default_api_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    transactional_id: str
    transaction_timeout_ms: int


class ProducerSettings(NamedTuple):
    """The settings of a producer, times in seconds.

    Attributes:
        acks: 0, 1 or -1 (all).
        max_in_flight: open requests per broker.
        max_request_bytes: of the batches in a request, and of a record.
        request_timeout_s: how long the broker may wait for its replicas.
        delivery_timeout_s: from `send` to the failure of a record that is not acknowledged.
        close_timeout_s: longest wait of a close.
        retry_backoff_s, retry_backoff_max_s: pause before a retry; it doubles with each failure, up to the second.
        codec, level: compression of batches, ids as in `records.compression`; level None = default of the codec.
        idempotent: the broker removes duplicates of retries.
        linger_s: how long a batch waits for more records.
        batch_bytes: largest batch before compression.
        buffer_bytes: of all records that are not acknowledged.
        max_block_s: longest wait of `drain`, and of records for the metadata of their topic.
        offload_bytes: batches of this size are compressed in a thread; None = none are.
        partitioner: as in `RecordAccumulator`.
        create_topics: a broker may create topics that do not exist.
        topic_max_idle_s: a topic without records for this time is forgotten.
        transactional_id: None = no transactions.
        transaction_timeout_ms: of the coordinator, in ms.
    """

    acks: int = ALL
    max_in_flight: int = 5
    max_request_bytes: int = 1 << 20
    request_timeout_s: float = 30.0
    delivery_timeout_s: float = 120.0
    close_timeout_s: float = 15.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    codec: int = 0
    level: int | None = None
    idempotent: bool = True
    linger_s: float = 0.005
    batch_bytes: int = 128 << 10
    buffer_bytes: int = 32 << 20
    max_block_s: float = 60.0
    offload_bytes: int | None = None
    partitioner: str | Partitioner | None = None
    create_topics: bool = True
    topic_max_idle_s: float = 300.0
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


class ParsedOptions(NamedTuple):
    """The settings of a producer and of its cluster client."""

    client: ClientSettings
    producer: ProducerSettings


def parse_options(
    bootstrap_servers: str | Iterable[str], options: ProducerOptions, misplaced: Sequence[object] = ()
) -> ParsedOptions:
    """Check the arguments of a producer.

    Arguments:
        bootstrap_servers: "host:port,host:port", a list of addresses, or "zookeeper://host:port/chroot".
        options: the keyword arguments.
        misplaced: further positional arguments; there must be none.

    Raises:
        TypeError: an option is unknown, or its value has another type. ValueError: a value is out of range.
    """
    reject_positional("Producer", 'Producer("localhost:9092"), then send("topic", b"value")', misplaced)
    reader = _Reader(cast(Mapping[str, object], options))
    acks = reader.acks()
    codec, level, offload_bytes = reader.compression()
    max_request_bytes = reader.integer("max_request_size", 1 << 20, least=1)
    request_timeout_s = reader.seconds("request_timeout_ms", 30_000, least=1)
    backoff_s = reader.seconds("retry_backoff_ms", 100)
    linger_s = reader.seconds("linger_ms", 5)
    producer = ProducerSettings(
        acks=acks,
        max_in_flight=reader.integer("max_in_flight", 5, least=1),
        max_request_bytes=max_request_bytes,
        request_timeout_s=request_timeout_s,
        delivery_timeout_s=reader.seconds("delivery_timeout_ms", 120_000, least=1),
        close_timeout_s=reader.seconds("close_timeout_ms", 15_000),
        retry_backoff_s=backoff_s,
        retry_backoff_max_s=max(backoff_s, reader.seconds("retry_backoff_max_ms", 1_000)),
        codec=codec,
        level=level,
        idempotent=reader.idempotent(acks),
        linger_s=linger_s,
        batch_bytes=min(reader.integer("batch_size", 128 << 10, least=1), max_request_bytes),
        buffer_bytes=reader.integer("buffer_memory", 32 << 20, least=1),
        max_block_s=reader.seconds("max_block_ms", 60_000),
        offload_bytes=offload_bytes,
        partitioner=reader.partitioner(),
        create_topics=reader.boolean("allow_auto_create_topics", True),
        topic_max_idle_s=reader.seconds("metadata_max_idle_ms", 300_000, least=1),
    )
    producer = reader.with_transactions(producer)
    addresses, source = parse_servers(bootstrap_servers)
    client = ClientSettings(
        bootstrap=addresses,
        client_id=reader.text("client_id", "kafkalite"),
        request_timeout_s=request_timeout_s,
        connect_timeout_s=reader.seconds("connect_timeout_ms", 10_000, least=1),
        default_api_timeout_s=reader.seconds("default_api_timeout_ms", 60_000, least=1),
        metadata_max_age_s=reader.seconds("metadata_max_age_ms", 300_000, least=1),
        retry_backoff_s=backoff_s,
        retry_backoff_max_s=producer.retry_backoff_max_s,
        connections_max_idle_s=reader.seconds("connections_max_idle_ms", 540_000, least=1),
        security=reader.security(),
        source=source,
    )
    reader.reject_unknown()
    _check_together(producer)
    return ParsedOptions(client, producer)


def _check_together(producer: ProducerSettings) -> None:
    if producer.transaction_timeout_ms > INT32_MAX:
        raise ValueError(f"transaction_timeout_ms is {producer.transaction_timeout_ms}, expected at most {INT32_MAX}")
    if producer.delivery_timeout_s < producer.linger_s + producer.request_timeout_s:
        raise ValueError(
            f"delivery_timeout_ms is {producer.delivery_timeout_s * 1000:g}, expected at least linger_ms + "
            f"request_timeout_ms = {(producer.linger_s + producer.request_timeout_s) * 1000:g}"
        )
    if producer.idempotent and producer.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise ValueError(
            f"max_in_flight is {producer.max_in_flight}, expected at most {MAX_IN_FLIGHT_IDEMPOTENT} with idempotence"
        )


class _Reader:
    """Reads options one by one, and knows at the end which ones no reader has asked for."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = options
        self._known: set[str] = set()

    def _get(self, name: str, default: object) -> object:
        self._known.add(name)
        return self._options.get(name, default)

    def text(self, name: str, default: str) -> str:
        return arguments.text(name, self._get(name, default))

    def integer(self, name: str, default: int, *, least: int) -> int:
        return arguments.integer(name, self._get(name, default), least=least)

    def boolean(self, name: str, default: bool) -> bool:
        return arguments.boolean(name, self._get(name, default))

    def seconds(self, name: str, default: float, *, least: float = 0) -> float:
        return arguments.seconds(name, self._get(name, default), least=least)

    def security(self) -> Security:
        self._known.update(SECURITY_OPTIONS)
        return parse_security(self._options)

    def acks(self) -> int:
        value = self._get("acks", "all")
        known = {"all": ALL, "-1": ALL, "0": 0, "1": 1, -1: ALL, 0: 0, 1: 1}
        if not isinstance(value, int | str) or isinstance(value, bool) or value not in known:
            raise ValueError(f'acks is {value!r}, expected "all", 1 or 0')
        return known[value]

    def idempotent(self, acks: int) -> bool:
        value = self.boolean("enable_idempotence", acks == ALL)
        if value and acks != ALL:
            raise ValueError(f'enable_idempotence needs acks="all", acks is {acks}; leave it out or set it to False')
        return value

    def with_transactions(self, producer: ProducerSettings) -> ProducerSettings:
        """Return settings with those of transactions."""
        timeout_ms = self.integer("transaction_timeout_ms", 60_000, least=1)
        value = self._get("transactional_id", None)
        if value is None:
            return producer._replace(transaction_timeout_ms=timeout_ms)
        name = arguments.text("transactional_id", value)
        if not name:
            raise ValueError("transactional_id is empty; leave it out for a producer without transactions")
        if producer.acks != ALL or not producer.idempotent:
            raise ValueError('transactional_id needs acks="all" and enable_idempotence; leave both out')
        return producer._replace(transactional_id=name, transaction_timeout_ms=timeout_ms)

    def compression(self) -> tuple[int, int | None, int | None]:
        """Return codec, level and the size from which a batch is compressed in a thread."""
        name, level = self._get("compression_type", "none"), self._get("compression_level", None)
        if name not in CODECS:
            raise ValueError(f"compression_type is {name!r}, expected one of {', '.join(CODECS)}")
        if level is None:
            return CODECS[name], None, OFFLOAD_BYTES.get(name)
        if name not in LEVELS:
            raise ValueError(f"compression_level is {level!r}, but {name} has no levels")
        lowest, highest = LEVELS[name]
        if not isinstance(level, int) or not lowest <= level <= highest:
            raise ValueError(f"compression_level of {name} is {level!r}, expected {lowest} to {highest}")
        return CODECS[name], level, OFFLOAD_BYTES["gzip"]

    def partitioner(self) -> str | Partitioner | None:
        value = self._get("partitioner", "murmur2")
        if callable(value):
            return cast(Partitioner, value)
        if value not in ("murmur2", "crc32"):
            raise ValueError(f'partitioner is {value!r}, expected "murmur2", "crc32" or a function')
        return value

    def reject_unknown(self) -> None:
        reject_unknown("Producer", self._options, self._known)
