"""The options of the source: names, precedence, defaults and validation are those of `format("kafka")`.

Pure, without PySpark. Names are case-insensitive. An option that does not exist, or that has no meaning here, is
rejected by its name before a job starts. Sources: KafkaSourceProvider.scala and ConsumerStrategy.scala of Spark 4.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkalite.model import TopicPartition
from pyspark_kafkalite.client_options import client_options
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.option_values import Values, parse_assign, parse_integer, parse_partition_numbers
from pyspark_kafkalite.schema import default_columns

EARLIEST, LATEST = -2, -1
TARGET_SPLIT_BYTES = 128 << 20
MAX_TRIGGER_DELAY_MS = 15 * 60_000
POLL_TIMEOUT_MS = 120_000
RETRIES, RETRY_INTERVAL_MS = 3, 1000
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
OFFSETS_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'
TIMES_EXAMPLE = '{"orders": {"0": 1735689600000}}'

STRATEGIES = ("assign", "subscribe", "subscribePattern")
ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
NAMES = (
    *STRATEGIES,
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", "startingOffsetsByTimestampStrategy"),
    *ENDINGS,
    *("failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("groupIdPrefix", "includeHeaders", "kafka."),
    *("maxBytesPerTrigger", "targetSplitBytes", "columns", "isolation", "pushFilters", "progressGroup"),
    *("rackVariable", "history"),
)


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read; one of the three is not None.

    Attributes:
        assigned: partitions.
        subscribed: names of topics.
        pattern: a regular expression (RE2) that a part of a topic's name matches, as in the connector.
    """

    assigned: tuple[TopicPartition, ...] | None = None
    subscribed: tuple[str, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end; one of the four is not None.

    Attributes:
        option: the name of the option that has set it, for error texts.
        everywhere: EARLIEST or LATEST for all partitions.
        offsets: by partition; EARLIEST and LATEST are possible.
        timestamp_ms: for all partitions.
        timestamps_ms: by partition.
    """

    option: str
    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a source.

    Attributes:
        client: keyword arguments of the clients of the SDK, with `bootstrap_servers`.
        topics: what is read.
        starting, ending: the first offsets, and those behind the last ones.
        unmatched_start: LATEST = a partition without a record at the starting time begins at its end; None = an error.
        fail_on_data_loss: lost records are an error, else a warning.
        poll_timeout_s: longest time of a task without records.
        retries, retry_interval_s: of the look-up of offsets.
        max_offsets, max_bytes: of one micro-batch, None = no limit.
        min_offsets, max_delay_s: a micro-batch waits for that many records, up to that time.
        min_partitions: least number of tasks, None = 1.
        max_records: most records of a task, None = no limit.
        target_split_bytes: size of a task in bytes of the log.
        headers: the schema has headers.
        columns: of the schema.
        isolation: "read_uncommitted" or "read_committed".
        push_filters: Spark passes filters to the source.
        progress_group: the consumer group that shows the progress of a stream; None = none.
        history: directory of a table whose offsets are read from its files; None = none.
    """

    client: Mapping[str, Any]
    topics: Topics
    starting: Position
    ending: Position
    unmatched_start: int | None
    fail_on_data_loss: bool
    poll_timeout_s: float
    retries: int
    retry_interval_s: float
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_s: float
    min_partitions: int | None
    max_records: int | None
    target_split_bytes: int
    headers: bool
    columns: tuple[str, ...]
    isolation: str
    push_filters: bool
    progress_group: str | None
    history: str | None


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a source.

    Arguments:
        options: as Spark passes them.
        streaming: of a stream; else of a batch.

    Raises:
        OptionError: names the option and what is expected.
    """
    values = Values(options, NAMES)
    strategy = values.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    headers = values.flag("includeHeaders", False)
    isolation = _isolation(values)
    max_offsets, min_offsets = (
        values.integer("maxOffsetsPerTrigger", None),
        values.integer("minOffsetsPerTrigger", None),
    )
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise OptionError("minOffsetsPerTrigger", f"{min_offsets} is more than maxOffsetsPerTrigger {max_offsets}")
    return SourceOptions(
        client=client_options(values),
        topics=_topics(values),
        starting=_starting(values, streaming=streaming),
        ending=_ending(values, streaming=streaming),
        unmatched_start=LATEST if strategy == "latest" else None,
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        poll_timeout_s=(values.integer("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS) or 0) / 1000,
        retries=values.integer("fetchOffset.numRetries", RETRIES, least=0) or 0,
        retry_interval_s=(values.integer("fetchOffset.retryIntervalMs", RETRY_INTERVAL_MS, least=0) or 0) / 1000,
        max_offsets=max_offsets,
        max_bytes=values.size("maxBytesPerTrigger", None),
        min_offsets=min_offsets,
        max_delay_s=values.milliseconds("maxTriggerDelay", MAX_TRIGGER_DELAY_MS) / 1000,
        min_partitions=values.integer("minPartitions", None),
        max_records=values.integer("maxRecordsPerPartition", None),
        target_split_bytes=values.size("targetSplitBytes", None) or TARGET_SPLIT_BYTES,
        headers=headers,
        columns=_columns(values, headers=headers),
        isolation=isolation,
        push_filters=values.flag("pushFilters", False),
        progress_group=_progress_group(values, streaming=streaming),
        history=_history(values),
    )


def _history(values: Values) -> str | None:
    location = values.text("history")
    if location == "":
        raise OptionError("history", "it is empty, expected the directory of a table")
    for name in ("startingTimestamp", "startingOffsetsByTimestamp"):
        if location is not None and values.text(name) is not None:
            raise OptionError(name, "it is not possible with history, which is searched by offset; use startingOffsets")
    return location


def _progress_group(values: Values, *, streaming: bool) -> str | None:
    group = values.text("progressGroup")
    if group is not None and not streaming:
        raise OptionError("progressGroup", "it is for streams; a batch has no progress")
    if group == "":
        raise OptionError("progressGroup", "it is empty, expected the id of a consumer group")
    return group


def _isolation(values: Values) -> str:
    java = values.text("kafka.isolation.level")
    isolation = values.choice("isolation", "read_uncommitted", ISOLATION_LEVELS)
    if java is None:
        return isolation
    if values.text("isolation") not in (None, java):
        raise OptionError("isolation", f"{isolation!r}, but kafka.isolation.level is {java!r}: leave one of them out")
    return values.choice("kafka.isolation.level", isolation, ISOLATION_LEVELS)


def _columns(values: Values, *, headers: bool) -> tuple[str, ...]:
    known, text = default_columns(headers=headers), values.text("columns")
    if text is None:
        return known
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known:
            raise OptionError("columns", f"{name!r}, expected some of {', '.join(known)}, separated by commas")
    if len(set(names)) != len(names):
        raise OptionError("columns", f"{text!r} names a column twice")
    return names


# topics


def _topics(values: Values) -> Topics:
    given = [name for name in STRATEGIES if values.text(name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none of them is given"
        raise OptionError(
            given[0] if given else "subscribe", f"{found}, expected exactly one of {', '.join(STRATEGIES)}"
        )
    (name,) = given
    text = values.text(name) or ""
    if name == "assign":
        return Topics(assigned=parse_assign(name, text))
    if name == "subscribe":
        names = tuple(sorted({each.strip() for each in text.split(",") if each.strip()}))
        if not names:
            raise OptionError(name, f"{text!r}, expected names of topics, separated by commas")
        return Topics(subscribed=names)
    compiled_pattern(text)
    return Topics(pattern=text)


def compiled_pattern(pattern: str) -> Any:
    """Compile the regular expression of `subscribePattern` with RE2, which takes linear time.

    Raises:
        OptionError: it is not valid, or has look-around or back-references, which RE2 does not support.
    """
    import re2  # type: ignore[import-untyped]

    if not pattern:
        raise OptionError("subscribePattern", "'', expected a regular expression")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise OptionError(
            "subscribePattern",
            f"{pattern!r} is not a regular expression of RE2 (no look-around, no back-references): {reason}",
        ) from None


# positions


def _starting(values: Values, *, streaming: bool) -> Position:
    default = LATEST if streaming else EARLIEST
    found = _position(values, "starting", default)
    if not streaming and found.everywhere == LATEST:
        raise OptionError(
            found.option, "latest is not possible in a batch: nothing would be read; expected earliest or JSON"
        )
    if not streaming and LATEST in (found.offsets or {}).values():
        raise OptionError(found.option, "-1 (latest) is not possible in a batch; expected offsets or -2 (earliest)")
    return found


def _ending(values: Values, *, streaming: bool) -> Position:
    if streaming:
        for name in ENDINGS:
            if values.text(name) is not None:
                raise OptionError(name, "it is for batches; a stream has no end")
    found = _position(values, "ending", LATEST)
    if found.everywhere == EARLIEST:
        raise OptionError(found.option, "earliest is not possible: nothing would be read; expected latest or JSON")
    if EARLIEST in (found.offsets or {}).values():
        raise OptionError(found.option, "-2 (earliest) is not possible; expected offsets or -1 (latest)")
    return found


def _position(values: Values, prefix: str, default: int) -> Position:
    """The most specific option wins: a timestamp, timestamps by partition, offsets."""
    name = f"{prefix}Timestamp"
    if (text := values.text(name)) is not None:
        return Position(name, timestamp_ms=parse_integer(name, text))
    name = f"{prefix}OffsetsByTimestamp"
    if (text := values.text(name)) is not None:
        return Position(name, timestamps_ms=parse_partition_numbers(name, text, TIMES_EXAMPLE, least=0))
    name = f"{prefix}Offsets"
    text = values.text(name)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text is None or text.lower() in words:
        return Position(name, everywhere=default if text is None else words[text.lower()])
    if not text.startswith("{"):
        raise OptionError(name, f"{text!r}, expected earliest, latest or JSON such as {OFFSETS_EXAMPLE}")
    return Position(name, offsets=parse_partition_numbers(name, text, OFFSETS_EXAMPLE, least=EARLIEST))


def schema_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of the schema, before it is known whether a stream is read. Raises OptionError."""
    values = Values(options, NAMES)
    return _columns(values, headers=values.flag("includeHeaders", False))
