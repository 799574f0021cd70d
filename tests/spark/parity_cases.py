"""The cases of the parity table: options of `format("kafka")` 4.2, each with the rows that both sources read, or with
the error of each.

Topic `orders` has two partitions, a0 to a4 and b0 to b2 with record times 1 s, 2 s and so on; `others` has c0 and c1.
"""

import json
from typing import NamedTuple

TOPIC, OTHER, EMPTY = "parity-orders", "parity-others", "parity-empty"
FIRST, SECOND, THIRD = "a0 a1 a2 a3 a4", "b0 b1 b2", "c0 c1"
ALL = f"{FIRST} {SECOND}"
Options = dict[str, str]


class Case(NamedTuple):
    """Options that are read or rejected.

    Attributes:
        options: added to those of the topic.
        rows: values that are read, separated by blanks; None = rejected.
        connector: a word of the connector's error; None = the connector reads, with another result than ours.
        ours: the class of our error, and the option that it names.
        subscribed: `subscribe` is set to the topic.
        addressed: `kafka.bootstrap.servers` is set.
    """

    options: Options
    rows: str | None = None
    connector: str | None = None
    ours: tuple[str, str] = ("", "")
    subscribed: bool = True
    addressed: bool = True


def of_topic(**values: object) -> str:
    """JSON for the partitions `p0`, `p1`, ... of the topic."""
    return json.dumps({TOPIC: {name[1:]: value for name, value in values.items()}})


def read(rows: str, options: Options | None = None, *, subscribed: bool = True) -> Case:
    """Both read these rows."""
    return Case(options or {}, rows, subscribed=subscribed)


def rejected(options: Options, connector: str, option: str, **others: bool) -> Case:
    """Both reject an option."""
    return Case(options, None, connector, ("OptionError", option), **others)


def stricter(options: Options, option: str, **others: bool) -> Case:
    """The connector ignores a mistake, the source rejects it by its name: decisions 2 and 33."""
    return Case(options, None, None, ("OptionError", option), **others)


STRATEGIES = [
    read(ALL),
    read(SECOND, {"assign": json.dumps({TOPIC: [1]})}, subscribed=False),
    read(f"{ALL} {THIRD}", {"subscribe": f" {TOPIC} , {OTHER},,{TOPIC}"}, subscribed=False),
    read(f"{ALL} {THIRD}", {"subscribePattern": "^parity-o[rt].*"}, subscribed=False),
    read(THIRD, {"subscribePattern": "ty-othe"}, subscribed=False),
    read("", {"subscribePattern": "none.*"}, subscribed=False),
    read("", {"subscribe": EMPTY}, subscribed=False),
    rejected({"assign": json.dumps({TOPIC: [1]})}, "Only one of the following options", "assign"),
    rejected({}, "One of the following options must be specified", "subscribe", subscribed=False),
    rejected({"assign": "x"}, "option 'assign' is 'x'", "assign", subscribed=False),
    rejected({"assign": "{"}, "Expected e.g.", "assign", subscribed=False),
    rejected({"assign": json.dumps({TOPIC: "x"})}, "Expected e.g.", "assign", subscribed=False),
    rejected({"subscribe": " , "}, "option 'subscribe' is ' , '", "subscribe", subscribed=False),
    rejected({"subscribePattern": ""}, "option 'subscribePattern' is ''", "subscribePattern", subscribed=False),
    rejected({"subscribePattern": "["}, "Unclosed character class", "subscribePattern", subscribed=False),
    rejected({}, "Option 'kafka.bootstrap.servers' must be specified", "kafka.bootstrap.servers", addressed=False),
    stricter({"assign": "{}"}, "assign", subscribed=False),
    stricter({"assign": json.dumps({TOPIC: [7]})}, "assign", subscribed=False),
    stricter({"subscribePattern": "(?!x)parity"}, "subscribePattern", subscribed=False),
    Case(
        {"subscribe": f"{TOPIC},none"},
        None,
        "UnknownTopicOrPartitionException",
        ("UnknownTopicOrPartitionError", "none"),
        subscribed=False,
    ),
]
STARTS = [
    read(ALL, {"startingOffsets": "EARLIEST"}),
    read(f"a2 a3 a4 {SECOND}", {"startingOffsets": of_topic(p0=2, p1=-2)}),
    read("a1 a2 a3 a4 b1 b2", {"startingTimestamp": "2000"}),
    read("a3 a4", {"startingTimestamp": "3500", "startingOffsetsByTimestampStrategy": "latest"}),
    read("a1 a2 a3 a4 b2", {"startingOffsetsByTimestamp": of_topic(p0=2000, p1=3000)}),
    read(
        "a2 a3 a4 b2",
        {"startingTimestamp": "3000", "startingOffsetsByTimestamp": of_topic(p0=5000, p1=1000)}
        | {"startingOffsets": of_topic(p0=0, p1=0)},
    ),
    read("a4 b2", {"startingOffsetsByTimestamp": of_topic(p0=5000, p1=3000), "startingOffsets": of_topic(p0=0, p1=0)}),
    rejected({"startingOffsets": "latest"}, "starting offset can't be latest", "startingOffsets"),
    rejected({"startingOffsets": of_topic(p0=2, p1=-1)}, f"{TOPIC}-1 can't be latest", "startingOffsets"),
    rejected({"startingOffsets": "middle"}, "got middle", "startingOffsets"),
    rejected({"startingOffsets": "{bad"}, "got {bad", "startingOffsets"),
    rejected({"startingOffsets": of_topic(p0=2)}, "Kafka start offsets don't match", "startingOffsets"),
    rejected({"startingOffsets": of_topic(p0=2, p1=0, p2=0)}, "start offsets don't match", "startingOffsets"),
    rejected({"startingOffsets": of_topic(p0=-3, p1=0)}, "-3", "startingOffsets"),
    rejected({"startingTimestamp": "3500"}, "No offset matched", "startingTimestamp"),
    rejected({"startingTimestamp": "x"}, "got x", "startingTimestamp"),
    rejected({"startingOffsetsByTimestamp": of_topic(p0=2000)}, "don't match", "startingOffsetsByTimestamp"),
    rejected({"startingOffsetsByTimestamp": of_topic(p0=1, p1=9000)}, "No offset", "startingOffsetsByTimestamp"),
    rejected({"startingOffsetsByTimestamp": "x"}, "got x", "startingOffsetsByTimestamp"),
    rejected(
        {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "other"},
        "",
        "startingOffsetsByTimestampStrategy",
    ),
]
ENDS = [
    read(ALL, {"endingOffsets": "latest"}),
    read(f"a0 a1 {SECOND}", {"endingOffsets": of_topic(p0=2, p1=-1)}),
    read("a0 b0", {"endingTimestamp": "2000"}),
    read(ALL, {"endingTimestamp": "9000"}),
    read(f"a0 {SECOND}", {"endingOffsetsByTimestamp": of_topic(p0=2000, p1=9000)}),
    read("a0 b0", {"endingTimestamp": "2000", "endingOffsets": "earliest"}),
    rejected({"endingOffsets": "earliest"}, "ending offset can't be earliest", "endingOffsets"),
    rejected({"endingOffsets": of_topic(p0=2, p1=-2)}, "can't be earliest", "endingOffsets"),
    rejected({"endingOffsets": of_topic(p0=2)}, "offsets don't match", "endingOffsets"),
    rejected(
        {"startingOffsets": of_topic(p0=4, p1=0), "endingOffsets": of_topic(p0=2, p1=1)},
        "start offset 4 is greater than the end offset 2",
        "endingOffsets",
    ),
    rejected({"endingTimestamp": "x"}, "got x", "endingTimestamp"),
    rejected({"endingOffsetsByTimestamp": of_topic(p0=2000)}, "don't match", "endingOffsetsByTimestamp"),
    Case({"startingOffsets": of_topic(p0=9, p1=0)}, None, "start offset 9 is greater", ("DataLossError", f"{TOPIC}-0")),
]
NUMBERS = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs", "minPartitions")
OTHERS = [
    read(ALL, {"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": "60000", "fetchOffset.numRetries": "2"}),
    read(ALL, {"fetchOffset.retryIntervalMs": "5", "minPartitions": "4", "maxRecordsPerPartition": "2"}),
    read(ALL, {"groupIdPrefix": "mine", "INCLUDEheaders": "TRUE", "kafka.max.poll.records": "2"}),
    read(ALL, {"kafka.group.id": "mine", "kafka.isolation.level": "read_committed"}),
    read(ALL, {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "1s"}),
    *(rejected({name: "x"}, 'For input string: "x"', name) for name in (*NUMBERS, "maxRecordsPerPartition")),
    *(rejected({name: "x"}, 'For input string: "x"', name) for name in ("failOnDataLoss", "includeHeaders")),
    *(rejected({name: "0"}, "(?i)" + name, name) for name in ("minPartitions", "maxRecordsPerPartition")),
    *(
        rejected({f"kafka.{name}": "x"}, f"'{name}' is not supported", f"kafka.{name}")
        for name in ("key.deserializer", "value.deserializer", "auto.offset.reset", "enable.auto.commit")
    ),
    rejected({"kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported", "kafka.interceptor.classes"),
    rejected({"kafka.isolation.level": "other"}, "isolation.level", "kafka.isolation.level"),
    rejected({"kafka.fetch.min.bytes": "x"}, "fetch.min.bytes", "kafka.fetch.min.bytes"),
    rejected({"kafka.request.timeout.ms": "x"}, "request.timeout.ms", "kafka.request.timeout.ms"),
    rejected({"kafka.security.protocol": "X"}, "security.protocol", "kafka.security.protocol"),
    stricter({"unknown": "1"}, "unknown"),
    stricter({"kafka.unknown": "1"}, "kafka.unknown"),
    stricter({"kafka.key.serializer": "x"}, "kafka.key.serializer"),
]
BATCHES = [*STRATEGIES, *STARTS, *ENDS, *OTHERS]

EARLIEST = {"startingOffsets": "earliest"}
STREAMS = [
    read(ALL, {**EARLIEST, "maxOffsetsPerTrigger": "3", "minPartitions": "3"}),
    read(""),
    read("a2 a3 a4", {"startingOffsets": of_topic(p0=2, p1=-1)}),
    read("a3 a4", {"startingTimestamp": "3500", "startingOffsetsByTimestampStrategy": "latest"}),
    read(ALL, {**EARLIEST, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"}),
    rejected({"endingOffsets": "latest"}, "ending offset not valid in streaming", "endingOffsets"),
    rejected({"endingOffsetsByTimestamp": of_topic(p0=1, p1=1)}, "not valid in streaming", "endingOffsetsByTimestamp"),
    rejected({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"}, "higher than", "minOffsetsPerTrigger"),
    rejected({"maxOffsetsPerTrigger": "x"}, 'For input string: "x"', "maxOffsetsPerTrigger"),
    rejected({"minOffsetsPerTrigger": "x"}, 'For input string: "x"', "minOffsetsPerTrigger"),
    rejected({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "x"}, "Failed to parse", "maxTriggerDelay"),
    stricter({"endingTimestamp": "1"}, "endingTimestamp"),
    stricter({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
]
