"""The broker under test, as a process of its own: `AGAINST=kafkalite` (default), `AGAINST=kafkalite-cluster` (one of
three brokers), `AGAINST=kafkalite-secured` (SASL_SSL and ACLs, see `tests.kit.secured`), `AGAINST=kafka` (Apache Kafka
4.4) or `AGAINST=kafka-zookeeper` (Apache Kafka 3.9 with ZooKeeper).

A compat test never knows which of the two it talks to: it gets an address, a data directory in Kafka's layout, and the
verbs stop (SIGTERM), kill (SIGKILL) and start, which returns to the same port and the same data.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from tests.kit import jvm
from tests.kit.certificates import Authority
from tests.kit.checker import ViolationError
from tests.kit.ports import free_port
from tests.kit.secured.listener import SecuredListener
from tests.kit.zookeeper import ZooKeeper, start_zookeeper

AGAINST = os.environ.get("AGAINST", "kafkalite")
IS_KAFKALITE = AGAINST.startswith("kafkalite")  # a broker that is alone, or a cluster
START_S = 120.0
STOP_S = 120.0
READY = "kafkalite ready on "
CRASHES = {-each for each in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)}
# The same for both brokers: defaults that only a real cluster can afford are lowered, nothing else.
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# A killed KRaft broker may come back only when its registration has ended, 9 s by default.
KRAFT_SETTINGS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}


def wait_until(condition: Callable[[], object], what: str, seconds: float = 120.0, every: float = 0.02) -> None:
    """Poll a condition for which there is no event; fails with `what` after the deadline."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        pause.wait(every)


class Broker(ABC):
    """One broker process on one directory and one port.

    `clean_exit` is the exit code of a stop that went well; `data` holds the partitions' directories; `ids` are those of
    all brokers.
    """

    clean_exit: int
    ids: tuple[int, ...] = (1,)
    host = "127.0.0.1"

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.settings = {**SETTINGS, **settings}
        self.port = free_port()
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log_dirs(self) -> list[Path]:
        """The log directories of all brokers."""
        return [self.data]

    def log_dir(self, topic: str, partition: int = 0) -> Path:
        """The log directory that has a partition."""
        (found,) = [each for each in self.log_dirs if (each / f"{topic}-{partition}").is_dir()]
        return found

    @property
    @abstractmethod
    def pid(self) -> int:
        """The id of the running process."""

    @abstractmethod
    def start(self) -> None:
        """Start the process and return when it serves; raises AssertionError with the end of its log if it does not."""

    @abstractmethod
    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""

    def freeze(self) -> None:
        """Send SIGSTOP: the process is suspended until `thaw`, or until it is killed. A second call has no effect."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: the process continues."""
        os.kill(self.pid, signal.SIGCONT)

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL: bytes that were not written to the operating system are lost."""

    @abstractmethod
    def running(self) -> bool:
        """Whether the process runs."""

    def close(self) -> None:
        """Stop it if it runs."""
        if self.running():
            self.stop()


class Kafkalite(Broker):
    """`python -m kafkalite serve`; its output is written to `server.log`."""

    clean_exit = 0
    python = sys.executable  # the interpreter of another build runs that one
    prefix: tuple[str, ...] = ()  # of the command line: runs the process elsewhere, under the same process id
    _process: subprocess.Popen[bytes] | None = None
    _said_before = 0

    @property
    def processes(self) -> list[Kafkalite]:
        """All brokers, of which this is the first."""
        return [self]

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def command(self) -> list[str]:
        """The command line; a subclass may put a tracer before it."""
        listen = [] if "listeners" in self.settings else ["--listen", self.address]
        settings = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        data = [] if "log.dirs" in self.settings else ["--data", str(self.data)]
        return [*self.prefix, self.python, "-m", "kafkalite", "serve", *listen, *data, *settings]

    def environ(self) -> dict[str, str]:
        """The variables of the process; those of this build's modules do not reach another build."""
        if self.python == sys.executable:
            return dict(os.environ)
        return {**{key: value for key, value in os.environ.items() if key != "PYTHONPATH"}, "PYTHONSAFEPATH": "1"}

    def launch(self) -> None:
        """Start the process without waiting for it."""
        assert not self.running(), "already running"
        with open(self.directory / "server.log", "ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environ()
            )

    def said(self) -> str:
        """The output and the log of this process so far."""
        return (self.directory / "server.log").read_bytes()[self._said_before :].decode(errors="replace")

    def wait_ready(self) -> None:
        """Wait until the launched process serves; AssertionError with the end of its log if it does not."""
        wait_until(lambda: READY in self.said() or not self.running(), "start of the broker", START_S)
        assert self.running(), f"the broker did not come up:\n{self.said()[-4000:]}"

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the process has ended, for any reason; returns its exit code."""
        assert self._process is not None, "not started"
        return self._process.wait()

    def _end(self, sign: signal.Signals) -> int:
        assert self._process is not None, "not started"
        self._process.send_signal(sign)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the broker ignored {sign.name} for {STOP_S} s") from None

    def running(self) -> bool:
        """Whether the process runs. Raises ViolationError if it has crashed."""
        code = None if self._process is None else self._process.poll()
        if code in CRASHES:
            raise ViolationError(f"the broker crashed: {signal.Signals(-code).name}\n{self.said()[-4000:]}")
        return self._process is not None and code is None


class KafkaliteCluster(Kafkalite):
    """Three brokers that share a coordination directory; the address and the data are those of the first."""

    ids = (1, 2, 3)

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        shared = {**settings, "kafkalite.coordination.directory": str(directory / "shared")}
        super().__init__(directory, {**shared, "broker.id": "1"})
        self.others = [Kafkalite(directory / str(each), {**shared, "broker.id": str(each)}) for each in self.ids[1:]]

    @property
    def log_dirs(self) -> list[Path]:
        return [self.data, *(broker.data for broker in self.others)]

    @property
    def processes(self) -> list[Kafkalite]:
        return [self, *self.others]

    def start(self) -> None:
        for broker in self.processes:
            broker.launch()
        for broker in self.processes:
            broker.wait_ready()

    def stop(self) -> int:
        return max([super().stop(), *(broker.stop() for broker in self.others)])

    def kill(self) -> None:
        super().kill()
        for broker in self.others:
            broker.kill()

    def close(self) -> None:
        """Stop those that run."""
        for broker in self.processes:
            if broker.running():
                Kafkalite.stop(broker)


class KafkaliteSecured(Kafkalite):
    """A broker whose clients log in over SASL_SSL and have ACLs; clients that cannot are logged in on the way."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory, settings)
        import_module("tests.kit.secured.clients")  # those of this process log in from now on
        authority = Authority(directory / "tls")
        self._listeners = [SecuredListener(authority, broker.port) for broker in self.processes]
        for broker, listener in zip(self.processes, self._listeners, strict=True):
            broker.settings |= listener.settings

    def start(self) -> None:
        super().start()
        for listener in self._listeners:
            listener.open()

    def close(self) -> None:
        """Stop it if it runs."""
        super().close()
        for listener in self._listeners:
            listener.close()


class KafkaliteSecuredCluster(KafkaliteSecured, KafkaliteCluster):
    """Three brokers with the same user and ACLs."""


class ApacheKafka(Broker):
    """Apache Kafka in KRaft mode, broker and controller in one process."""

    clean_exit = 143  # Java's answer to SIGTERM
    _kafka: jvm.KafkaProcess | None = None

    @property
    def pid(self) -> int:
        assert self._kafka is not None, "not started"
        return self._kafka.pid

    def start(self) -> None:
        assert not self.running(), "already running"
        self._kafka = self._start()

    def _start(self) -> jvm.KafkaProcess:
        settings = {**KRAFT_SETTINGS, **self.settings}
        return jvm.start_kafka(jvm.CURRENT, self.directory, heap="512m", port=self.port, overrides=settings)

    def stop(self) -> int:
        assert self._kafka is not None, "not started"
        return self._kafka.stop()

    def kill(self) -> None:
        assert self._kafka is not None, "not started"
        self._kafka.kill()

    def running(self) -> bool:
        return self._kafka is not None and self._kafka.process.poll() is None


class ApacheKafkaZooKeeper(ApacheKafka):
    """Apache Kafka 3.9 in ZooKeeper mode; its ZooKeeper runs until `close`."""

    _zookeeper: ZooKeeper | None = None

    @property
    def zookeeper(self) -> ZooKeeper:
        """The running ZooKeeper."""
        assert self._zookeeper is not None, "not started"
        return self._zookeeper

    def _start(self) -> jvm.KafkaProcess:
        if self._zookeeper is None:
            self._zookeeper = start_zookeeper(self.directory)
        # This version has neither share groups nor the group assignment interval.
        settings = {key: value for key, value in self.settings.items() if not key.startswith("group.consumer.")}
        return jvm.start_kafka(
            jvm.PREVIOUS,
            self.directory,
            heap="512m",
            port=self.port,
            overrides=settings,
            zookeeper=self._zookeeper.address,
        )

    def kill(self) -> None:
        """SIGKILL; return when its session has expired: Apache Kafka does not start before."""
        super().kill()
        zookeeper = self._zookeeper
        assert zookeeper is not None
        wait_until(lambda: "/brokers/ids/" not in zookeeper.dump(), "the end of the broker's session")

    def close(self) -> None:
        super().close()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None


KINDS: dict[str, type[Broker]] = {
    "kafkalite": Kafkalite,
    "kafkalite-cluster": KafkaliteCluster,
    "kafkalite-secured": KafkaliteSecured,
    "kafkalite-secured-cluster": KafkaliteSecuredCluster,
    "kafka": ApacheKafka,
    "kafka-zookeeper": ApacheKafkaZooKeeper,
}


@contextmanager
def broker_under_test(
    directory: Path, settings: Mapping[str, str] | None = None, against: str = AGAINST
) -> Iterator[Broker]:
    """A running broker; ended with the block, whatever its state.

    Arguments:
        directory: for its data and log, created if missing.
        settings: broker settings under Kafka's names.
        against: a key of KINDS.
    """
    broker = KINDS[against](directory, settings or {})
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
