"""A standalone cluster of Spark: a master and workers with one core each."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.kit.brokers import wait_until
from tests.kit.ports import free_port

HOST, OTHER_HOST = "127.0.0.1", "127.0.0.2"
"""Addresses of this machine, which are two hosts for Spark."""


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
        where = ("--host", HOST, "--port", str(port), "--webui-port", str(free_port()))
        self._start("master", HOST, "master.Master", *where)
        self._wait("master", "I have been elected leader")

    @classmethod
    @contextmanager
    def started(cls, directory: Path, *hosts: str) -> "Iterator[Standalone]":
        """A cluster with a worker, `worker-1` etc., on each host."""
        with ExitStack() as stack:
            created = cls(directory, stack)
            for number, host in enumerate(hosts, 1):
                created.add_worker(f"worker-{number}", host)
            yield created

    def add_worker(self, name: str, host: str) -> None:
        """Start a worker with one core, and wait until the master has accepted it."""
        work = self.directory / name
        ports = ("--port", str(free_port()), "--webui-port", str(free_port()))
        sizes = ("--cores", "1", "--memory", "600m", "--work-dir", str(work))
        self._start(name, host, "worker.Worker", "--host", host, *ports, *sizes, self.master)
        self._wait(name, "Successfully registered with master")

    def executors(self, name: str) -> list[Path]:
        """The directories of the executors that a worker has started."""
        return list((self.directory / name).glob("app-*/*"))

    def _start(self, name: str, host: str, main: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_NO_DAEMONIZE": "1"}
        command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{main}", *arguments]
        log = self._stack.enter_context((self.directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def _wait(self, name: str, text: str) -> None:
        log = self.directory / f"{name}.log"
        wait_until(lambda: text in log.read_text(errors="replace"), f"{name}: {text}")
