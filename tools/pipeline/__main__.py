"""Runs the pipeline of the flights: a broker, a topic, the jobs `lake`, `latest` and `window`, and a plot.

    python -m tools.pipeline [--flights N] [--directory DIRECTORY]

The tables are removed at the end unless a directory is given.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow
from kafkalite_sdk.blocking import Producer
from pyspark_kafkalite.tables.reading import read

from kafkalite.testing.thread import BrokerThread
from tests.kit.flights import FLIGHTS, flights
from tools.pipeline.plot import monthly, table_text

TOPIC, PARTITIONS = "flights", 2
JOBS = ("lake", "latest", "window")
HERE = Path(__file__).parent


def main() -> int:
    """Returns the exit code: that of the first job that has failed, else 0."""
    parser = argparse.ArgumentParser(prog="make pipeline", description=__doc__)
    parser.add_argument("--flights", type=int, default=FLIGHTS, metavar="N", help="the first N flights of the file")
    parser.add_argument("--directory", metavar="DIRECTORY", help="where the tables are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flights-") as temporary, BrokerThread() as broker:
        directory = Path(given.directory or temporary).absolute()
        print(f"broker: {broker.address}", flush=True)
        produce(broker, given.flights)
        for job in JOBS:
            code = run(job, broker.address, directory)
            if code:
                return code
        show(directory)
    return 0


def produce(broker: BrokerThread, count: int) -> None:
    """Send the flights in the order of time; the key is the tail number of the aircraft."""
    broker.create_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": -1})  # the flights are from 2013
    sent = flights(count)
    columns = {
        "key": pyarrow.array([each.key for each in sent], pyarrow.binary()),
        "value": pyarrow.array([each.value for each in sent], pyarrow.binary()),
        "timestamp": pyarrow.array([each.timestamp_ms for each in sent], pyarrow.int64()),
    }
    began_s = time.monotonic()
    table, rows = pyarrow.table(columns), 20_000
    producer: Producer[Any, Any]
    with Producer(broker.address, compression_type="lz4") as producer:
        for start in range(0, len(table), rows):
            producer.send_columns(TOPIC, table.slice(start, rows)).result()
    print(f"topic {TOPIC}: {len(table):,} flights in {time.monotonic() - began_s:.1f} s", flush=True)


def run(job: str, address: str, directory: Path) -> int:
    """Run a job as a user does. Returns its exit code."""
    command = [sys.executable, "-m", "kafkalite", "pipeline", "run", str(HERE / f"{job}.toml")]
    print(f"\n$ kafkalite pipeline run {job}.toml", flush=True)
    environment = {**os.environ, "KAFKALITE_BOOTSTRAP": address, "FLIGHTS_DIRECTORY": str(directory)}
    began_s = time.monotonic()
    code = subprocess.run(command, env=environment, check=False).returncode
    print(f"{time.monotonic() - began_s:.1f} s", flush=True)
    return code


def show(directory: Path) -> None:
    """Print what the tables contain."""
    lake = read(directory / "lake")
    latest = read(directory / "latest").to_table(columns=["key", "value", "_timestamp"])
    windows = read(directory / "window").to_table()
    print(f"\nlake: {lake.count_rows():,} flights in {len(lake.files)} files\n")
    print(f"latest: the last flight of {len(latest):,} aircraft; the last ones are")
    print(table_text(latest.sort_by([("_timestamp", "descending"), ("key", "ascending")]).slice(0, 5)))
    flights_of_windows = sum(windows["flights"].to_pylist())
    print(f"\nwindow: {flights_of_windows:,} flights in {len(windows):,} complete days of airports; the last is open\n")
    print(monthly(windows))


if __name__ == "__main__":
    sys.exit(main())
