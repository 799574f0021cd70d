"""A driver whose sink is killed: `kill_sink_driver.py MASTER ADDRESS SOURCE TARGET DIRECTORY [PROPERTY=VALUE ...]`.

It appends records to SOURCE and copies them to TARGET until all kills of DIRECTORY/kills have happened and one more run
has ended well. A kill of the driver ends this process.
"""

import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark import kill_driver
from tests.spark.killing_sink import DRIVER_OPTION, OPTION, KilledSource
from tests.spark.sink_kills import SinkKills

DEADLINE_S = 480  # with many kills


def run(spark: SparkSession, address: str, source: str, target: str, directory: Path, **given: str) -> bool:
    """Copy what is in the log; return whether there was no kill. Raises an error that no kill has caused.

    Arguments:
        spark: the session.
        address: of the broker.
        source, target: topics.
        directory: with the kills.
        given: other options of the source.
    """
    kills = SinkKills(directory / "kills", os.getpid())
    kills.begin_driver(spark)
    spark.dataSource.register(KilledSource)
    servers = {"kafka.bootstrap.servers": address}
    frame = spark.readStream.format("kafkalite").options(**servers, subscribe=source, **kill_driver.OPTIONS | given)
    options = {"topic": target, "exactlyOnce": "true", OPTION: str(kills.directory), DRIVER_OPTION: str(os.getpid())}
    writer = frame.load().select("value").writeStream.format(KilledSource.name()).options(**servers, **options)
    before = kills.done()
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(DEADLINE_S), "the query has not ended"
    except PySparkException:
        if kills.done() == before:
            raise
    return kills.done() == before


def main(master: str, address: str, source: str, target: str, directory: str, *properties: str) -> None:
    spark = kill_driver.session(master, directory, **dict(each.split("=", 1) for each in properties))
    kills = SinkKills(Path(directory, "kills"), os.getpid())
    kill_driver.append(address, source)
    while not run(spark, address, source, target, Path(directory)) or kills.done() < len(kills.plan):
        kill_driver.append(address, source)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
