"""Secrets that a user has passed appear in no text: errors, reprs, settings of workers and of jobs."""

import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from kafkalite_sdk import Admin, Consumer, Producer
from kafkalite_sdk.blocking import Producer as BlockingProducer
from kafkalite_sdk.columns import ColumnReader
from kafkalite_sdk.compat.aiokafka import AIOKafkaProducer
from kafkalite_sdk.registry import SchemaRegistry
from pyspark_kafkalite.decoding import Decoding
from pyspark_kafkalite.decoding.registry import schemas_of
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.worker import Job
from pyspark_kafkalite.jobs.buckets import BucketJob
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.replay import Sending
from pyspark_kafkalite.jobs.settings.job_file import parse_job
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.sink_options import sink_options
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions
from pyspark_kafkalite.task import Task

from kafkalite.coordination.zookeeper.address import parse_address
from kafkalite.model import shown_address

SECRET = "TOP,SEC/RE:T@x"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
SPARK = {"kafka.bootstrap.servers": "h:1", **{f"kafka.{name}": value for name, value in LOGIN.items()}}
PARTS = ("TOP", "SEC", "RE:T")
SDK_LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u"}


def assert_hidden(*texts: str) -> None:
    for text in texts:
        assert not any(part in text for part in PARTS), text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("h:9092", "h:9092"),
        ("u:p@h:9092", "h:9092"),
        ("https://u:p@h/x", "https://h/x"),
        ("https://u:p@q@h/x", "https://h/x"),
        ("u:p,q@h:1,k:2", "h:1,k:2"),
        (" zk://u:p\n@h", " zk://h"),
    ],
)
def test_address_is_shown_without_user_name_and_password(text: str, shown: str) -> None:
    assert shown_address(text) == shown


CLIENTS: list[Callable[..., Any]] = [Producer, Consumer, Admin, ColumnReader, BlockingProducer, AIOKafkaProducer]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("form", ["http://u:{}@h:1", "u:{}@h:1", "h:1,u:{}@k:2"])
async def test_error_about_an_address_has_no_secret(client: Callable[..., Any], form: str) -> None:
    with pytest.raises(ValueError, match="bootstrap_servers: user names and passwords are no part") as raised:
        client(bootstrap_servers=form.format(SECRET))
    assert_hidden(str(raised.value))


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, ColumnReader, BlockingProducer])
async def test_repr_of_a_client_has_no_secret(client: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    created = client("h:1", **SDK_LOGIN, sasl_password=SECRET)
    assert_hidden(repr(created), repr(getattr(created, "__dict__", {})), caplog.text)
    for wrong in ({"sasl_password": SECRET}, {**SDK_LOGIN, "sasl_password": SECRET.encode()}):
        with pytest.raises((TypeError, ValueError)) as raised:
            client("h:1", **wrong)
        assert_hidden(str(raised.value))


def test_address_of_zookeeper_and_of_a_registry_have_no_secret() -> None:
    for text in (f"u:{SECRET}@h:1/kafka", f"u:{SECRET}@h:99999"):
        with pytest.raises(ValueError, match="h:") as raised:
            parse_address(text)
        assert_hidden(str(raised.value))
    url = "http://u:TOP%2CSEC@h:1"
    decoding = Decoding(value="avro", registry_url=url)
    assert (decoding.registry_url, decoding.registry_auth) == ("http://h:1", ("u", "TOP,SEC"))
    assert_hidden(repr(decoding), repr(decoding.load_schemas()), repr(SchemaRegistry(url)))
    assert_hidden(repr(schemas_of(decoding.registry_url or "", decoding.registry_auth)))
    with pytest.raises(OptionError) as raised_too:
        Decoding(value="avro", registry_url=f"ftp://u:{SECRET}@h:1")
    assert_hidden(str(raised_too.value))


def test_what_the_driver_sends_to_workers_shows_no_secret() -> None:
    source = source_options({**SPARK, "subscribe": "t"}, streaming=True)
    sink = sink_options({**SPARK, "topic": "t"})
    assert source.client["sasl_password"] == sink.client["sasl_password"] == SECRET
    task = Task((), {}, source.client, "read_committed", fail_on_data_loss=True, timeout_s=1.0)
    batch = BatchJob.of(source, "/attempts", 0, ParquetOptions())
    job = Job(batch, Decoding(value="avro", registry_url="http://u:TOP@h:1"), None)
    for each in (source, sink, task, batch, job, BucketJob(batch, 1, "error", {}), Sending(sink.client, "t", True)):
        assert_hidden(repr(each), str(each))
    sent = pickle.loads(pickle.dumps(task))
    assert sent == task and sent.client["sasl_password"] == SECRET
    assert_hidden(repr(sent))


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.sasl.jaas.config": f"Module required password={SECRET}"},
        {"kafka.sasl.jaas.config": JAAS, "kafka.security.protocol": "PLAINTEXT"},
        {"kafka.ssl.key.password": SECRET},
        {"kafka.sasl.jaas.confik": JAAS},
        {"kafka.bootstrap.servers": f"u:{SECRET}@h:1"},
    ],
)
def test_error_about_an_option_has_no_secret(options: dict[str, str]) -> None:
    given = {"kafka.bootstrap.servers": "h:1", **options}
    for check in (lambda: source_options({**given, "subscribe": "t"}, streaming=True), lambda: sink_options(given)):
        with pytest.raises(OptionError) as raised:
            check()
        assert_hidden(str(raised.value), repr(raised.value.__cause__))


def test_job_file_shows_no_secret() -> None:
    content: dict[str, Any] = {
        "job": {"type": "lake"},
        "source": {**SPARK, "subscribe": "t"},
        "table": {"path": "orders"},
        "spark": {"master": "local[1]", "spark.ssl.keyPassword": SECRET, "x": f"http://u:{SECRET}@h"},
        "decoding": {"value": "avro", "registry_url": "http://u:TOP@h:1"},
    }
    job = parse_job(content, "job.toml")
    assert job.source["kafka.sasl.jaas.config"] == JAAS
    assert_hidden(repr(job), repr(job.source_options()))
    for section, values in (
        ("source", {**SPARK, "kafka.sasl.jaas.config": [JAAS]}),
        ("source", {**SPARK, "kafka.bootstrap.servers": [f"u:{SECRET}@h:1"]}),
        ("decoding", {"value": "avro", "registry_url": [f"http://u:{SECRET}@h:1"]}),
    ):
        with pytest.raises(JobError) as raised:
            parse_job({**content, section: values}, "job.toml")
        assert_hidden(str(raised.value))
