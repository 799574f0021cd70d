"""A driver whose sink is killed again and again: `kill_sink_driver.py MASTER ADDRESS SOURCE TARGET DIRECTORY`.

It appends records to the topic SOURCE and copies them to TARGET with `exactlyOnce`, until all kills of DIRECTORY/kills
have happened and one more run has ended well. A kill of the driver ends this process.
"""

import os
import signal
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.kill_driver import OPTIONS, append
from tests.spark.kill_driver import session as new_session
from tests.spark.killing import DRIVER
from tests.spark.killing_sink import OPTION, KilledSource, SinkKills

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.task.duration.threshold": "4s",
}
"""An attempt that runs for 4 s gets a speculative one: longer than attempts run that are not stalled."""

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
    kills = SinkKills(directory / "kills")
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


def main(master: str, address: str, source: str, target: str, directory: str) -> None:
    root = Path(directory)
    kills = SinkKills(root / "kills")
    (kills.directory / "driver.pid").write_text(str(os.getpid()))
    for name, value in SPECULATION.items():
        SparkSession.builder.config(name, value)
    spark = new_session(master, directory)
    append(address, source)
    while not run(spark, address, source, target, root) or kills.done() < len(kills.plan):
        append(address, source)
    spark.stop()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (Py4JError, OSError):
        kills = SinkKills(Path(sys.argv[-1]) / "kills")
        if not kills.done() or kills.plan[kills.done() - 1].target != DRIVER:
            raise
        os.kill(os.getpid(), signal.SIGKILL)  # the JVM was the first to end
