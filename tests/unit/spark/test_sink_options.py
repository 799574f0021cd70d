"""The options and the columns of the sink."""

import pytest
from pyspark_kafkalite.errors import OptionError, SchemaError
from pyspark_kafkalite.sink_options import sink_columns, sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_name_of_a_query_is_accepted_since_spark_passes_it() -> None:
    assert sink_options({**SERVERS, "queryname": "windows", "checkpointlocation": "x"}).topic is None


def test_batches_are_large_by_default_and_javas_names_are_translated() -> None:
    found = sink_options(SERVERS)
    assert found.topic is None and (found.client["linger_ms"], found.client["batch_size"]) == (20, 256 << 10)
    options = {
        "kafka.linger.ms": "0",
        "kafka.acks": "1",
        "kafka.compression.type": "zstd",
        "kafka.compression.zstd.level": "3",
        "kafka.max.in.flight.requests.per.connection": "2",
        "TOPIC": "orders",
    }
    found = sink_options({**SERVERS, **options})
    assert found.topic == "orders" and found.client == {
        "bootstrap_servers": "localhost:9092",
        "client_id": "spark-kafkalite",
        "linger_ms": 0,
        "batch_size": 256 << 10,
        "acks": "1",
        "compression_type": "zstd",
        "compression_level": 3,
        "max_in_flight": 2,
    }


def test_exactly_once_has_a_topic_of_decisions_and_a_long_timeout() -> None:
    assert sink_options(SERVERS).decisions is None
    found = sink_options({**SERVERS, "exactlyOnce": "true"})
    assert found.decisions == "spark-sink-decisions" and found.client["transaction_timeout_ms"] == 900_000
    assert found.shared == {"bootstrap_servers": "localhost:9092", "client_id": "spark-kafkalite"}
    given = {"exactlyonce": "TRUE", "decisionTopic": "mine", "kafka.transaction.timeout.ms": "60000"}
    found = sink_options({**SERVERS, **given})
    assert found.decisions == "mine" and found.client["transaction_timeout_ms"] == 60_000


@pytest.mark.parametrize(
    ("options", "option", "reason"),
    [
        ({"exactlyOnce": "yes"}, "exactlyOnce", "'yes', expected true or false"),
        ({"decisionTopic": "x"}, "decisionTopic", "expected exactlyOnce true, too"),
        ({"kafka.transaction.timeout.ms": "5"}, "kafka.transaction.timeout.ms", "expected exactlyOnce true, too"),
        ({"exactlyOnce": "true", "decisionTopic": ""}, "decisionTopic", "expected the name of a topic"),
        ({"exactlyOnce": "true", "decisionTopic": "t", "topic": "t"}, "decisionTopic", "without other records"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "kafka.acks", "all"),
        ({"exactlyOnce": "true", "kafka.enable.idempotence": "false"}, "kafka.enable.idempotence", "idempotence"),
        (
            {"exactlyOnce": "true", "kafka.transaction.timeout.ms": "x"},
            "kafka.transaction.timeout.ms",
            "expected a whole number",
        ),
        ({"topic": ""}, "topic", "the name of a topic"),
        ({"subscribe": "orders"}, "subscribe", "does not exist"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer", "Spark decides it"),
        ({"kafka.acks": "2"}, "kafka.acks", '"all", 1 or 0'),
        ({"kafka.compression.type": "lzo"}, "kafka.compression.type", "zstd"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id", "not supported"),
        ({"kafka.linger": "5"}, "kafka.linger", "did you mean kafka.linger.ms"),
    ],
)
def test_wrong_option_is_named_with_what_is_expected(options: dict[str, str], option: str, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        sink_options({**SERVERS, **options})
    assert caught.value.option == option and reason in str(caught.value)


def test_columns_are_those_of_the_connector() -> None:
    fields = [("n", "int"), ("value", "string"), ("key", "binary"), ("topic", "string"), ("partition", "int")]
    assert sink_columns(fields, topic=False) == ("value", "key", "partition")
    assert sink_columns([("value", "binary")], topic=True) == ("value",)
    for wrong, topic, reason in (
        ([("key", "binary")], True, "value is missing"),
        ([("value", "binary")], False, "topic is missing"),
        ([("value", "int")], True, "value has type int, expected binary or string"),
        ([("value", "binary"), ("partition", "bigint")], True, "partition has type bigint, expected int"),
        ([("value", "binary"), ("topic", "int")], False, "topic has type int"),
        ([("value", "binary"), ("headers", "string")], True, "headers has type string"),
    ):
        with pytest.raises(SchemaError, match=reason):
            sink_columns(wrong, topic=topic)
