"""The options and the columns of the sink: those of `format("kafka")`, with larger batches by default.

Pure, without PySpark. Sources: KafkaWriter.scala and KafkaSourceProvider.scala of Spark 4.2.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_kafkalite.client_options import DEFAULT_CLIENT_ID, PREFIX, SHARED, Translations, translate
from pyspark_kafkalite.errors import OptionError, SchemaError
from pyspark_kafkalite.option_values import ShownOptions, Values, parse_flag, parse_integer

NAMES = (
    *("topic", "includeHeaders", "exactlyOnce", "decisionTopic", "checkpointLocation", "queryName"),
    "kafka.",
)
DEFAULTS = {"linger_ms": 20, "batch_size": 256 << 10}
TRANSACTION_TIMEOUT_MS = 900_000  # the default of `transaction.max.timeout.ms`: a restart of the driver fits into it
DECISION_TOPIC = "spark-sink-decisions"
TIMEOUT = "transaction.timeout.ms"
SILENT = ("metric.reporters", "send.buffer.bytes", "receive.buffer.bytes", "client.dns.lookup", "enable.metrics.push")
HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS = {"key": ("binary", "string"), "value": ("binary", "string"), "headers": (HEADERS,), "partition": ("int",)}


def _text(_: str, value: str) -> str:
    return value


def _at_least(least: int) -> Callable[[str, str], int]:
    return lambda name, value: parse_integer(name, value, least=least)


TRANSLATED: Translations = {
    **SHARED,
    "acks": (("acks",), _text),
    "enable.idempotence": (("enable_idempotence",), parse_flag),
    "linger.ms": (("linger_ms",), _at_least(0)),
    "batch.size": (("batch_size",), _at_least(1)),
    "buffer.memory": (("buffer_memory",), _at_least(1)),
    "max.request.size": (("max_request_size",), _at_least(1)),
    "max.in.flight.requests.per.connection": (("max_in_flight",), _at_least(1)),
    "delivery.timeout.ms": (("delivery_timeout_ms",), _at_least(1)),
    TIMEOUT: (("transaction_timeout_ms",), _at_least(1)),
    "max.block.ms": (("max_block_ms",), _at_least(1)),
    "compression.type": (("compression_type",), _text),
    "compression.gzip.level": (("compression_level",), _at_least(-1)),
    "compression.lz4.level": (("compression_level",), _at_least(1)),
    "compression.zstd.level": (("compression_level",), _at_least(-131_072)),
}

LOGIN_ARGUMENTS = ("sasl_username", "sasl_password")
SHARED_ARGUMENTS = {"bootstrap_servers", *LOGIN_ARGUMENTS, *(name for names, _ in SHARED.values() for name in names)}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink.

    Attributes:
        client: keyword arguments of the producer, with `bootstrap_servers`.
        topic: of all rows; None = each row has it in the column `topic`.
        decisions: the topic of decisions of the option `exactlyOnce`; None = at least once.
    """

    client: Mapping[str, Any]
    topic: str | None
    decisions: str | None = None

    @property
    def shared(self) -> Mapping[str, Any]:
        """The arguments that all clients have."""
        return {name: value for name, value in self.client.items() if name in SHARED_ARGUMENTS}


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a sink. Raises OptionError that names the option and what is expected."""
    values = Values(options, NAMES)
    values.flag("includeHeaders", False)  # a column `headers` is always written
    found = ShownOptions({**DEFAULTS, **translate(values, TRANSLATED, SILENT, DEFAULT_CLIENT_ID)})
    topic = values.text("topic")
    if topic == "":
        raise OptionError("topic", "it is empty, expected the name of a topic, or a column topic")
    decisions = _decisions(values, topic)
    if decisions is not None:
        found.setdefault("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS)
        _check_acknowledged(found)
    _check(found)
    return SinkOptions(found, topic, decisions)


def _decisions(values: Values, topic: str | None) -> str | None:
    """Return the topic of decisions, None = at least once. Raises OptionError."""
    decisions = values.text("decisionTopic")
    if not values.flag("exactlyOnce", False):
        for name, given in (("decisionTopic", decisions), (PREFIX + TIMEOUT, values.text(PREFIX + TIMEOUT))):
            if given is not None:
                raise OptionError(name, "it belongs to transactions, expected exactlyOnce true, too")
        return None
    if decisions == "" or decisions == topic is not None:
        raise OptionError("decisionTopic", f"it is {decisions!r}, expected the name of a topic without other records")
    return decisions or DECISION_TOPIC


def _check_acknowledged(found: Mapping[str, Any]) -> None:
    """Raise OptionError: transactions need all acknowledgements and idempotence."""
    if found.get("acks", "all") not in ("all", "-1"):
        raise OptionError(PREFIX + "acks", f"it is {found['acks']}, expected all with exactlyOnce")
    if not found.get("enable_idempotence", True):
        raise OptionError(PREFIX + "enable.idempotence", "it is false, expected true with exactlyOnce")


def _check(found: Mapping[str, Any]) -> None:
    """Have the SDK check the values."""
    from kafkalite_sdk.producer.settings import parse_options

    arguments: Any = {name: value for name, value in found.items() if name != "bootstrap_servers"}
    try:
        parse_options(found["bootstrap_servers"], arguments)
    except (TypeError, ValueError) as error:
        argument = re.match(r"\w+", str(error))
        names = [name for name, (named, _) in TRANSLATED.items() if argument and argument[0] in named]
        raise OptionError(PREFIX + (names[0] if names else "bootstrap.servers"), str(error)) from None


def sink_columns(fields: Sequence[tuple[str, str]], *, topic: bool) -> tuple[str, ...]:
    """Return the columns that are written, in the order of the schema. Other columns are ignored, as by the connector.

    Arguments:
        fields: name and type (`simpleString` of PySpark) of each column.
        topic: the option `topic` names the topic.

    Raises:
        SchemaError: `value` or `topic` is missing, or a column has another type.
    """
    types = dict(fields)
    if "value" not in types:
        raise SchemaError("schema: column value is missing")
    if not topic and "topic" not in types:
        raise SchemaError("schema: column topic is missing; add it, or set the option topic")
    if not topic and types["topic"] != "string":
        raise SchemaError(f"schema: column topic has type {types['topic']}, expected string")
    for name, allowed in COLUMNS.items():
        if name in types and types[name] not in allowed:
            raise SchemaError(f"schema: column {name} has type {types[name]}, expected {' or '.join(allowed)}")
    return tuple(name for name, _ in fields if name in COLUMNS)
