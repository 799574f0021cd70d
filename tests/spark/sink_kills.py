"""The kills of a query whose sink has `exactlyOnce`: their phases, their targets, and how the processes are found.

Beside the files of `Kills` the directory has these:

- `driver.json`: process ids of the driver and its JVM. A kill of the driver removes it first.
- `executor.pid`: of the executor whose task began last.
- `twin-K-B-P-N`: attempt N of partition P in batch B waits for another attempt, as kill K.
- `detached-K-B-P-N`: the attempt has written its rows, when K kills had happened.

Processes whose driver or executor is killed in a task may go on, as after the loss of a connection, but kill nothing.
"""

import json
import os
import signal
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark_kafkalite.exactly_once.attempts import current_attempt

from tests.kit.brokers import wait_until
from tests.spark.killing import BROKER, DRIVER, EXECUTOR, PROCESS, Kill, Kills, parent

TASK = (
    "task before its transaction",
    "task while it sends",
    "task before its flush",
    "task before its transaction is detached",
    "task after its transaction is detached",
)
COMMIT = (
    "sink before the decision",
    "sink after the decision",
    "sink between the commits of two transactions",
    "sink before the batch is complete",
    "sink after its commit",
)
TARGETS = (PROCESS, BROKER, EXECUTOR, DRIVER)

TWIN = "twin"
"""Ends no process: the attempt waits until a speculative one has written the same rows, then it continues."""

_VARIABLES = ("KAFKALITE_KILLS", "KAFKALITE_DRIVER")


class SinkKills(Kills):
    """The kills of one directory, for a process of a query.

    Arguments:
        directory: of the kills.
        driver: process id of the driver of this process.
    """

    def __init__(self, directory: Path, driver: int) -> None:
        super().__init__(directory)
        self._driver = driver

    @classmethod
    def join(cls, directory: str, driver: str) -> "SinkKills":
        """The kills of this process, from now on."""
        os.environ.update(zip(_VARIABLES, (directory, driver), strict=True))
        return cls.of_this_process()

    @classmethod
    def of_this_process(cls) -> "SinkKills":
        directory, driver = (os.environ[each] for each in _VARIABLES)
        return cls(Path(directory), int(driver))

    def begin_driver(self, spark: SparkSession) -> None:
        """Name the processes of the driver."""
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        pids = [self._driver, jvm.java.lang.ProcessHandle.current().pid()]
        self._write("driver.json", json.dumps(pids))

    def begin_task(self) -> None:
        """Name the executor of the task."""
        self._write("executor.pid", str(parent(os.getppid())))

    def detached(self) -> None:
        """Note that the attempt of this process has written its rows."""
        self._write(f"detached-{self.done()}-{_current()}", "")

    def reached(self, phase: str, table: Path | None = None) -> None:
        """Kill, if the next kill is in this phase and this process belongs to the living driver."""
        if self._driver in self._driver_pids():
            super().reached(phase, table)

    def _kill(self, kill: Kill, table: Path | None) -> None:
        if kill.target == TWIN:
            self._wait_for_twin()
        elif kill.target == EXECUTOR:
            os.kill(int((self.directory / "executor.pid").read_text()), signal.SIGKILL)
        elif kill.target == DRIVER:
            pids = self._driver_pids()
            (self.directory / "driver.json").unlink()
            for each in pids:
                os.kill(each, signal.SIGKILL)
            if kill.phase in COMMIT:
                os.kill(os.getpid(), signal.SIGKILL)
        else:
            super()._kill(kill, table)
        if kill.target in (EXECUTOR, DRIVER) and kill.phase in TASK:
            self._leave()

    def _leave(self) -> None:
        """This process kills nothing any more."""
        os.environ[_VARIABLES[1]] = "-1"
        self._driver = -1

    def _driver_pids(self) -> list[int]:
        file = self.directory / "driver.json"
        try:
            pids: list[int] = json.loads(file.read_text())
        except FileNotFoundError:
            return []  # it is killed
        return pids

    def _wait_for_twin(self) -> None:
        waits = f"{self.done() - 1}-{_current()}"
        self._write(f"twin-{waits}", "")
        wait_until(lambda: self._has_twin(waits), f"a speculative attempt beside {waits}")

    def _has_twin(self, waits: str) -> bool:
        """Whether another attempt has written the same rows since then."""
        kill, batch, partition, number = waits.split("-")
        found = (each.name.split("-") for each in self.directory.glob(f"detached-*-{batch}-{partition}-*"))
        return any(int(done) > int(kill) and other != number for _, done, _, _, other in found)

    def twins(self) -> int:
        """How many attempts have waited, and another one has written the same rows."""
        return sum(self._has_twin(each.name.partition("-")[2]) for each in self.directory.glob("twin-*"))

    def _write(self, name: str, text: str) -> None:
        """Write a file that is complete from the first moment."""
        written = self.directory / f"{os.getpid()}.{name}"
        written.write_text(text)
        written.replace(self.directory / name)


def _current() -> str:
    """The attempt of this process: batch, partition and number."""
    attempt = current_attempt()
    return f"{attempt.batch}-{attempt.partition}-{attempt.number}"
