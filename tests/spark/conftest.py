"""One Spark session and one broker for all tests. Spark runs two tasks at a time and its Python is that of this run."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would start `python3` of the path, which has no PySpark
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

CONFIGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two task slots."""
    builder = SparkSession.builder.master("local[2]").appName("kafkalite")
    directory = tmp_path_factory.mktemp("spark")
    for name, value in {**CONFIGS, "spark.sql.warehouse.dir": str(directory)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
