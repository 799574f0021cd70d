"""One Spark session and one broker for all tests. Spark runs two tasks at a time and its Python is that of this run."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from kafkalite_sdk.blocking import Admin, Producer
from pyspark.sql import SparkSession
from pyspark_kafkalite.startup import configure_fast_start

from kafkalite.testing.thread import BrokerThread
from tests.kit import jvm
from tests.spark import java_options
from tests.spark.ingest_job import PARTITIONS, IngestJob
from tests.spark.rig import Collected, Rig

os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ.update(java_options.ENVIRONMENT)
for each in ("PYSPARK_PYTHON", "SPARK_HOME"):  # of the developer's shell
    os.environ.pop(each, None)
configure_fast_start()

CONFIGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": java_options.OPTIONS,
    "spark.sql.streaming.noDataProgressEventInterval": "100",
}


def connector_missing() -> str | None:
    """Why `format("kafka")` cannot be compared with, or None. It must have the version of PySpark."""
    wanted = jvm.FOREIGN["spark"]["pyspark"]
    other = None if pyspark.__version__ == wanted else f"the connector is {wanted}, PySpark {pyspark.__version__}"
    return jvm.java_missing() or other


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    """All JVMs of Spark start with an archive of their classes."""
    if jvm.java_missing() is None:
        java_options.write_archive()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two task slots."""
    builder = SparkSession.builder.master("local[2]").appName("kafkalite")
    directory = tmp_path_factory.mktemp("spark")
    if connector_missing() is None:  # for the parity table
        builder = builder.config("spark.jars", ",".join(map(str, jvm.spark_connector_jars())))
    for name, value in {**CONFIGS, "spark.sql.warehouse.dir": str(directory)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


@pytest.fixture
def rig(
    spark: SparkSession,
    kafkalite_broker: BrokerThread,
    kafkalite_topic: str,
    kafkalite_producer: "Producer[Any, Any]",
) -> Iterator[Rig]:
    """A topic of this test, with one partition unless the marker `kafkalite` names another number."""
    with Admin(kafkalite_broker.address) as admin:
        yield Rig(spark, kafkalite_broker, kafkalite_topic, kafkalite_producer, admin)


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    """Rows of a stream with a checkpoint of this test."""
    return Collected(tmp_path / "checkpoint")


@pytest.fixture
def job(
    spark: SparkSession,
    tmp_path: Path,
    kafkalite_broker: Any,
    kafkalite_topic_factory: Callable[..., str],
    kafkalite_producer: Producer[Any, Any],
) -> IngestJob:
    """A topic with 100 records."""
    topic = kafkalite_topic_factory(partitions=PARTITIONS)
    created = IngestJob(spark, tmp_path, kafkalite_broker.address, topic, kafkalite_producer)
    created.send(100)
    return created
