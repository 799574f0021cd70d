"""Job files on a standalone cluster: a master and two workers.

Workers have the same environment as the driver, or one that spark-submit ships. Job files on this machine are those of
test_pipeline.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyspark
import pytest
from kafkalite_sdk.blocking import Producer
from pyspark_kafkalite import submit

from kafkalite.testing.thread import BrokerThread
from tests.spark import java_options
from tests.spark.standalone import HOST, Standalone

SCRIPT = Path(submit.__file__).with_name("kafkalite_job.py")
PARTITIONS, COUNT = 4, 400
NAMES = ("worker-1", "worker-2")
RUN_S = 300
JOB = """
[job]
type = "lake"
[source]
kafka.bootstrap.servers = "{address}"
subscribe = "{topic}"
startingOffsets = "earliest"
minPartitions = "4"
[table]
path = "{table}"
partition = "none"
[spark]
master = "{master}"
spark.ui.enabled = "false"
spark.driver.host = "127.0.0.1"
spark.executor.memory = "512m"
spark.cores.max = "2"
spark.scheduler.minRegisteredResourcesRatio = "1.0"
spark.scheduler.maxRegisteredResourcesWaitingTime = "120s"
spark.executor.extraJavaOptions = "{java_options}"
spark.sql.warehouse.dir = "{table}-warehouse"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A standalone cluster with two workers."""
    with Standalone.started(tmp_path_factory.mktemp("cluster"), HOST, HOST) as created:
        yield created


class Runs:
    """Runs a job that copies a topic to a table.

    Arguments:
        directory: for job files and tables.
        source: address of the broker, and the topic.
    """

    def __init__(self, directory: Path, source: tuple[str, str]) -> None:
        self._directory = directory
        self._address, self._topic = source

    def job(self, name: str, master: str) -> Path:
        """Write a job file; its table is the directory `name`."""
        where = {"address": self._address, "topic": self._topic, "table": self._directory / name, "master": master}
        job = self._directory / f"{name}.toml"
        job.write_text(JOB.format(**where, java_options=java_options.OPTIONS))
        return job

    def run(self, name: str, command: list[str], **variables: str) -> None:
        """Run a job in the directory, and verify its table."""
        kept = {each: value for each, value in os.environ.items() if each != "PYSPARK_PYTHON"}
        how = {"cwd": self._directory, "env": {**kept, **variables}, "timeout": RUN_S}
        done = subprocess.run(command, **how, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = pyarrow.dataset.dataset(self._directory / name, format="parquet").to_table(columns=["value"])
        assert sorted(map(int, rows["value"].to_pylist())) == list(range(COUNT))


@pytest.fixture
def runs(
    tmp_path: Path,
    kafkalite_broker: BrokerThread,
    kafkalite_topic_factory: Callable[..., str],
    kafkalite_producer: "Producer[Any, Any]",
) -> Runs:
    """Jobs over a topic with the numbers below `COUNT`."""
    topic = kafkalite_topic_factory(partitions=PARTITIONS)
    for number in range(COUNT):
        kafkalite_producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    kafkalite_producer.flush()
    return Runs(tmp_path, (kafkalite_broker.address, topic))


def environment_archive(directory: Path) -> Path:
    """An environment and its archive; to save time it has links to the packages of this one instead of copies."""
    created = directory / "environment"
    venv.create(created, symlinks=True)
    site = created / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (site / "packages.pth").write_text("\n".join(each for each in sys.path if Path(each).is_dir()))
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(created, arcname=".")
    return archive


def executors(cluster: Standalone) -> dict[str, set[Path]]:
    """The directories of all executors so far, by worker."""
    return {name: set(cluster.executors(name)) for name in NAMES}


def test_job_file_runs_on_a_standalone_cluster(cluster: Standalone, runs: Runs) -> None:
    earlier = executors(cluster)
    job = runs.job("cluster", cluster.master)
    runs.run("cluster", [sys.executable, "-m", "kafkalite", "pipeline", "run", str(job)])
    assert [len(found - earlier[name]) for name, found in executors(cluster).items()] == [1, 1]


def test_spark_submit_ships_the_environment_of_the_workers(cluster: Standalone, runs: Runs, tmp_path: Path) -> None:
    earlier = executors(cluster)
    spark_submit = str(Path(pyspark.__file__).parent / "bin/spark-submit")
    shipped = ("--archives", f"{environment_archive(tmp_path)}#environment")
    job = ("--config", str(runs.job("submitted", cluster.master)))
    command = [spark_submit, "--master", cluster.master, *shipped, str(SCRIPT), *job]
    runs.run("submitted", command, PYSPARK_PYTHON="./environment/bin/python")
    started = [each for name, found in executors(cluster).items() for each in found - earlier[name]]
    assert all((each / "environment/bin/python").exists() for each in started) and len(started) == 2
