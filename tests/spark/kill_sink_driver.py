"""Runs a query whose sink is killed."""

from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.kill_driver import OPTIONS
from tests.spark.killing import Kills
from tests.spark.killing_sink import OPTION, KilledSource

DEADLINE_S = 120


def run(spark: SparkSession, address: str, source: str, target: str, directory: Path, **given: str) -> bool:
    """Copy what is in the log; return whether there was no kill. Raises an error that no kill has caused.

    Arguments:
        spark: the session.
        address: of the broker.
        source, target: topics.
        directory: with the kills.
        given: other options of the source.
    """
    kills = Kills(directory / "kills")
    spark.dataSource.register(KilledSource)
    servers = {"kafka.bootstrap.servers": address}
    frame = spark.readStream.format("kafkalite").options(**servers, subscribe=source, **OPTIONS | given).load()
    options = {**servers, "topic": target, "exactlyOnce": "true", OPTION: str(kills.directory)}
    writer = frame.select("value").writeStream.format(KilledSource.name()).options(**options)
    before = kills.done()
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(DEADLINE_S), "the query has not ended"
    except PySparkException:
        if kills.done() == before:
            raise
    return kills.done() == before
