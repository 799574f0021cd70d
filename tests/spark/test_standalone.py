"""One job file on this machine, and on a standalone cluster: a master and two workers with the same environment."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyspark
import pytest
from kafkalite_sdk.blocking import Producer

from kafkalite.testing.thread import BrokerThread
from tests.kit.brokers import wait_until
from tests.kit.ports import free_port
from tests.spark import java_options

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
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


def test_job_file_runs_on_a_standalone_cluster_as_on_this_machine(
    cluster: Standalone,
    tmp_path: Path,
    kafkalite_broker: BrokerThread,
    kafkalite_topic_factory: Callable[..., str],
    kafkalite_producer: "Producer[Any, Any]",
) -> None:
    topic = kafkalite_topic_factory(partitions=PARTITIONS)
    for number in range(COUNT):
        kafkalite_producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    kafkalite_producer.flush()
    for name, master in (("local", "local[2]"), ("cluster", cluster.master)):
        job, table = tmp_path / f"{name}.toml", tmp_path / name
        where = {"address": kafkalite_broker.address, "topic": topic, "table": table, "master": master}
        job.write_text(JOB.format(**where, java_options=java_options.OPTIONS))
        command = [sys.executable, "-m", "kafkalite", "pipeline", "run", str(job)]
        environment = {each: value for each, value in os.environ.items() if each != "PYSPARK_PYTHON"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_S)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = pyarrow.dataset.dataset(table, format="parquet").to_table(columns=["value"])
        assert sorted(map(int, rows["value"].to_pylist())) == list(range(COUNT))
    assert [len(cluster.executors(name)) for name in ("first", "second")] == [1, 1]
