"""The session of the tests has started as `configure_fast_start` says."""

import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark import java_options


def test_driver_has_loaded_its_classes_from_the_archive(spark: SparkSession) -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    assert str(java_options.ARCHIVE) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def imported(_: int) -> tuple[str, str]:
        import pyspark

        return sys.executable, str(pyspark.__file__)

    ((interpreter, module),) = spark.sparkContext.parallelize([0], 1).map(imported).collect()
    assert interpreter == sys.executable and Path(module).is_file()  # a module of pyspark.zip is no file
