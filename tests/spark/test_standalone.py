"""One job file on this machine and on a standalone cluster: a master and two workers.

Workers have the same environment as the driver, or one that spark-submit ships.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyspark
import pytest
from kafkalite_sdk.blocking import Producer
from pyspark_kafkalite import submit

from kafkalite.testing.thread import BrokerThread
from tests.kit.brokers import wait_until
from tests.kit.ports import free_port
from tests.spark import java_options

HOST = "127.0.0.1"
SCRIPT = Path(submit.__file__).with_name("kafkalite_job.py")
PARTITIONS, COUNT = 4, 400
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


class Standalone:
    """A master and workers, each a process.

    Arguments:
        directory: for their logs and the directories of their executors.
        stack: ends them.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        port = free_port()
        self.master = f"spark://{HOST}:{port}"
        self._start("master", "master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(free_port()))
        self._wait("master", "I have been elected leader")

    def add_worker(self, name: str) -> None:
        """Start a worker with one core, and wait until the master has accepted it."""
        work = self.directory / name
        ports = ("--port", str(free_port()), "--webui-port", str(free_port()))
        sizes = ("--cores", "1", "--memory", "600m", "--work-dir", str(work))
        self._start(name, "worker.Worker", "--host", HOST, *ports, *sizes, self.master)
        self._wait(name, "Successfully registered with master")

    def executors(self, name: str) -> list[Path]:
        """The directories of the executors that a worker has started."""
        return list((self.directory / name).glob("app-*/*"))

    def _start(self, name: str, main: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1"}
        command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{main}", *arguments]
        log = self._stack.enter_context((self.directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def _wait(self, name: str, text: str) -> None:
        log = self.directory / f"{name}.log"
        wait_until(lambda: text in log.read_text(errors="replace"), f"{name}: {text}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    """A standalone cluster with two workers."""
    with ExitStack() as stack:
        created = Standalone(tmp_path, stack)
        for name in ("first", "second"):
            created.add_worker(name)
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


def test_job_file_runs_on_a_standalone_cluster_as_on_this_machine(cluster: Standalone, runs: Runs) -> None:
    for name, master in (("local", "local[2]"), ("cluster", cluster.master)):
        runs.run(name, [sys.executable, "-m", "kafkalite", "pipeline", "run", str(runs.job(name, master))])
    assert [len(cluster.executors(name)) for name in ("first", "second")] == [1, 1]


def test_spark_submit_ships_the_environment_of_the_workers(cluster: Standalone, runs: Runs, tmp_path: Path) -> None:
    spark_submit = str(Path(pyspark.__file__).parent / "bin/spark-submit")
    shipped = ("--archives", f"{environment_archive(tmp_path)}#environment")
    job = ("--config", str(runs.job("submitted", cluster.master)))
    command = [spark_submit, "--master", cluster.master, *shipped, str(SCRIPT), *job]
    runs.run("submitted", command, PYSPARK_PYTHON="./environment/bin/python")
    executors = [each for name in ("first", "second") for each in cluster.executors(name)]
    assert all((each / "environment/bin/python").exists() for each in executors) and len(executors) == 2
