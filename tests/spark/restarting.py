"""What the kill matrices start again after each kill: the broker, and the driver."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.blocking import Admin

from tests.kit.brokers import Kafkalite
from tests.spark import kill_driver
from tests.spark.killing import DRIVER, Kills

ROOT = Path(__file__).parents[2]
RUN_S = 500


@contextmanager
def restarting_broker(directory: Path, kills: Path, *topics: str) -> Iterator[Kafkalite]:
    """A broker that is started again whenever it was killed.

    Arguments:
        directory: of the broker.
        kills: directory of the kills; the pid of the broker is in its file `broker.pid`.
        topics: are created, with `kill_driver.PARTITIONS` partitions each.
    """
    broker = Kafkalite(directory, {})
    stopping = threading.Event()

    def started() -> None:
        broker.start()
        (kills / "broker.pid").write_text(str(broker.pid))

    def supervise() -> None:
        while broker.wait() == -signal.SIGKILL and not stopping.is_set():
            started()

    started()
    with Admin(broker.address) as admin:
        for topic in topics:
            admin.topics.create(NewTopic(topic, partitions=kill_driver.PARTITIONS)).check()
    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield broker
    finally:
        stopping.set()
        broker.close()
        thread.join()


def run_drivers(command: Sequence[str], log: Path, kills: Kills) -> None:
    """Start drivers until one has ended well; each one before was killed in its turn.

    Arguments:
        command: of a driver.
        log: their output.
        kills: those of the drivers.
    """
    starts = 1
    while _drive(command, log) == -signal.SIGKILL:
        starts += 1
    assert starts == 1 + sum(kill.target == DRIVER for kill in kills.plan)


def _drive(command: Sequence[str], log: Path) -> int:
    with log.open("ab") as output:
        done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=RUN_S)
    assert done.returncode in (0, -signal.SIGKILL), log.read_text(errors="replace")[-6000:]
    return done.returncode
