"""The options of the source: each is honoured, or rejected with its name."""

from typing import Any

import pytest
from kafkalite_sdk import TopicPartition
from pyspark_kafkalite.client_options import admin_options, reader_options
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.options import EARLIEST, LATEST, SourceOptions, compiled_pattern, source_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
REQUIRED = {**SERVERS, "subscribe": "orders"}
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def parse(streaming: bool = False, **options: str) -> SourceOptions:
    """Options with the required ones; `_` in a name is a dot."""
    return source_options({**REQUIRED, **{n.replace("_", "."): v for n, v in options.items()}}, streaming=streaming)


def test_defaults_are_those_of_the_connector() -> None:
    batch, stream = parse(), parse(True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert (stream.starting.everywhere, stream.max_delay_s, stream.retries) == (LATEST, 900.0, 3)
    assert batch.fail_on_data_loss and batch.poll_timeout_s == 120.0 and not batch.headers
    limits = (batch.max_offsets, batch.min_offsets, batch.max_bytes, batch.min_partitions, batch.max_records)
    assert limits == (None,) * 5
    assert batch.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_names_are_case_insensitive() -> None:
    found = source_options(
        {
            "KAFKA.bootstrap.SERVERS": "localhost:1",
            "SUBSCRIBE": "b, a",
            "startingoffsets": "EARLIEST",
            "MINPARTITIONS": "3",
        },
        streaming=True,
    )
    assert found.topics.subscribed == ("a", "b") and found.min_partitions == 3
    assert found.starting.everywhere == EARLIEST and found.client["bootstrap_servers"] == "localhost:1"


def test_every_option_is_honoured() -> None:
    found = parse(
        True,
        failOnDataLoss="FALSE",
        kafkaConsumer_pollTimeoutMs="512",
        fetchOffset_numRetries="7",
        fetchOffset_retryIntervalMs="20",
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2m",
        minPartitions="4",
        maxRecordsPerPartition="50",
        includeHeaders="true",
        maxBytesPerTrigger="64m",
        targetSplitBytes="1048576",
        columns="value, headers",
        isolation="read_committed",
        pushFilters="true",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert not found.fail_on_data_loss and (found.poll_timeout_s, found.retries, found.retry_interval_s) == (
        0.512,
        7,
        0.02,
    )
    assert (found.max_offsets, found.min_offsets, found.max_delay_s) == (100, 10, 120.0)
    assert (found.min_partitions, found.max_records, found.headers) == (4, 50, True)
    assert (found.max_bytes, found.target_split_bytes) == (64 << 20, 1 << 20)
    assert found.columns == ("value", "headers") and found.isolation == "read_committed" and found.push_filters
    assert found.unmatched_start == LATEST


@pytest.mark.parametrize("prefix", ["starting", "ending"])
def test_timestamp_precedes_timestamps_of_partitions_and_offsets(prefix: str) -> None:
    options = {
        f"{prefix}Offsets": '{"orders":{"0":23,"1":5}}',
        f"{prefix}OffsetsByTimestamp": '{"orders":{"0":1000,"1":2000}}',
        f"{prefix}Timestamp": "3000",
    }
    names = []
    for _ in range(3):
        found = getattr(source_options({**REQUIRED, **options}, streaming=False), prefix)
        names.append(found.option)
        if found.option.endswith("Offsets"):
            assert found.offsets == {FIRST: 23, SECOND: 5}
        elif found.option.endswith("ByTimestamp"):
            assert found.timestamps_ms == {FIRST: 1000, SECOND: 2000}
        else:
            assert found.timestamp_ms == 3000
        del options[found.option]
    assert names == [f"{prefix}Timestamp", f"{prefix}OffsetsByTimestamp", f"{prefix}Offsets"]


REJECTED: list[tuple[dict[str, str], bool, str, str]] = [
    ({"subscribe": ""}, False, "subscribe", "names of topics"),
    ({"subscribe": " , "}, False, "subscribe", "names of topics"),
    ({"assign": '{"orders":[0]}'}, False, "assign", "exactly one of assign, subscribe, subscribePattern"),
    ({"subscribePattern": "a.*"}, False, "subscribe", "exactly one of"),
    ({"startingOffsets": "latest"}, False, "startingOffsets", "not possible in a batch"),
    ({"startingOffsets": '{"orders":{"0":-1}}'}, False, "startingOffsets", "-1 (latest)"),
    ({"startingOffsets": "first"}, True, "startingOffsets", "earliest, latest or JSON"),
    ({"startingOffsets": "{"}, True, "startingOffsets", "is not JSON"),
    ({"startingOffsets": '{"orders":{"0":-3}}'}, True, "startingOffsets", "from -2 on"),
    ({"startingOffsets": '{"orders":{"x":1}}'}, True, "startingOffsets", "a number from 0 on"),
    ({"startingOffsets": '{"orders":[1]}'}, True, "startingOffsets", "expected such as"),
    ({"endingOffsets": "earliest"}, False, "endingOffsets", "latest or JSON"),
    ({"endingOffsets": '{"orders":{"0":-2}}'}, False, "endingOffsets", "-2 (earliest)"),
    ({"endingOffsets": "latest"}, True, "endingOffsets", "a stream has no end"),
    ({"endingOffsetsByTimestamp": "{}"}, True, "endingOffsetsByTimestamp", "a stream has no end"),
    ({"endingTimestamp": "1"}, True, "endingTimestamp", "a stream has no end"),
    ({"startingTimestamp": "-1"}, True, "startingTimestamp", "at least 0"),
    ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, True, "startingOffsetsByTimestamp", "from 0 on"),
    ({"startingOffsetsByTimestampStrategy": "x"}, True, "startingOffsetsByTimestampStrategy", "error or latest"),
    ({"failOnDataLoss": "yes"}, False, "failOnDataLoss", "true or false"),
    ({"minPartitions": "0"}, False, "minPartitions", "at least 1"),
    ({"maxRecordsPerPartition": "-1"}, False, "maxRecordsPerPartition", "at least 1"),
    ({"maxOffsetsPerTrigger": "1.5"}, True, "maxOffsetsPerTrigger", "whole number"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, True, "minOffsetsPerTrigger", "more than"),
    ({"maxTriggerDelay": "soon"}, True, "maxTriggerDelay", "15m"),
    ({"maxBytesPerTrigger": "0"}, True, "maxBytesPerTrigger", "above 0"),
    ({"columns": "value,size"}, False, "columns", "'size'"),
    ({"columns": "value,headers"}, False, "columns", "'headers'"),
    ({"columns": "value,value"}, False, "columns", "twice"),
    ({"isolation": "serializable"}, False, "isolation", "read_committed"),
    (
        {"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"},
        False,
        "isolation",
        "leave one of them out",
    ),
    ({"startingOffset": "earliest"}, False, "startingoffset", "did you mean startingOffsets"),
    ({"topic": "orders"}, False, "topic", "does not exist"),
    ({"kafka.bootstrap.servers": ""}, False, "kafka.bootstrap.servers", "missing"),
    ({"kafka.bootstrap.servers": "a:b"}, False, "kafka.bootstrap.servers", "not an address"),
    ({"kafka.fetch.max.wait": "1"}, False, "kafka.fetch.max.wait", "did you mean kafka.fetch.max.wait.ms"),
    ({"kafka.request.timeout.ms": "x"}, False, "kafka.request.timeout.ms", "whole number"),
    ({"kafka.ssl.truststore.type": "JKS"}, False, "kafka.ssl.truststore.type", "expected PEM"),
    ({"kafka.security.protocol": "TLS"}, False, "kafka.security.protocol", "SASL_SSL"),
    (
        {"kafka.sasl.jaas.config": "com.x.Krb5LoginModule required;"},
        False,
        "kafka.sasl.jaas.config",
        "PlainLoginModule",
    ),
    *(
        ({f"kafka.{name}": "x"}, False, f"kafka.{name}", "Spark decides it")
        for name in (
            *("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
            *("auto.offset.reset", "enable.auto.commit", "interceptor.classes"),
        )
    ),
]


@pytest.mark.parametrize(("options", "streaming", "option", "reason"), REJECTED)
def test_wrong_option_is_named_with_what_is_expected(
    options: dict[str, str], streaming: bool, option: str, reason: str
) -> None:
    with pytest.raises(OptionError) as caught:
        source_options({**REQUIRED, **options}, streaming=streaming)
    if option not in ("subscribe", "assign"):
        assert caught.value.option == option
    assert option in str(caught.value) and reason in str(caught.value)


def test_pattern_that_is_not_linear_is_rejected() -> None:
    assert compiled_pattern("orders-.*").search("orders-eu")
    for pattern in ("(?=orders).*", "(?<!x)orders", r"(a|b)\1", "(", ""):
        with pytest.raises(OptionError, match="subscribePattern"):
            source_options({**SERVERS, "subscribePattern": pattern}, streaming=False)


def test_rack_is_that_of_the_process_that_reads() -> None:
    client = dict(parse(rackVariable="RACK").client)
    here = {"bootstrap_servers": "localhost:9092", "client_id": "spark-kafkalite"}
    assert reader_options(client, {"RACK": "a"}) == {**here, "client_rack": "a"}
    assert reader_options(client, {"OTHER": "b"}) == reader_options(client, {"RACK": ""}) == here
    assert admin_options(client) == here
    for wrong in ({"rackVariable": "a b"}, {"rackVariable": "RACK", "kafka_client_rack": "a"}):
        with pytest.raises(OptionError, match="rackVariable"):
            parse(**wrong)


def test_names_of_java_become_those_of_the_sdk() -> None:
    client: dict[str, Any] = dict(
        parse(
            kafka_client_id="billing",
            kafka_request_timeout_ms="1234",
            kafka_max_partition_fetch_bytes="1048576",
            kafka_client_rack="a",
            kafka_check_crcs="false",
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism="SCRAM-SHA-256",
            kafka_sasl_jaas_config="org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="billing" password="a \\"b\\" c;";',
            kafka_socket_connection_setup_timeout_ms="900",
        ).client
    )
    assert client == {
        "bootstrap_servers": "localhost:9092",
        "client_id": "billing",
        "request_timeout_ms": 1234,
        "max_partition_fetch_bytes": 1048576,
        "client_rack": "a",
        "check_crcs": False,
        "connect_timeout_ms": 900,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "billing",
        "sasl_password": 'a "b" c;',
    }


def test_settings_of_javas_consumer_without_an_effect_are_accepted() -> None:
    found = parse(kafka_max_poll_records="10000", kafka_receive_buffer_bytes="-1", groupIdPrefix="billing")
    assert found.client == {"bootstrap_servers": "localhost:9092", "client_id": "billing"}
    assert parse(kafka_isolation_level="read_committed").isolation == "read_committed"


def test_password_is_in_no_error() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user="x" password="secret";'
    with pytest.raises(OptionError) as caught:
        parse(kafka_sasl_jaas_config=login)
    assert "secret" not in str(caught.value)


def test_progress_group_is_for_streams() -> None:
    assert parse(True, progressGroup="orders-copy").progress_group == "orders-copy"
    for streaming, value in ((False, "a"), (True, " ")):
        with pytest.raises(OptionError, match="option progressGroup"):
            parse(streaming, progressGroup=value)
