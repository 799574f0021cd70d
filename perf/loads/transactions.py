"""Transactions: of librdkafka, in sequence, of many producers with offsets, over many partitions; committed reads.

All numbers are of version 2 (KIP-890): Produce adds its partitions, EndTxn returns the next epoch.
"""

import importlib
import importlib.util
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType

from kafkalite.errors import KafkaErrorCode
from perf import transaction_wire as wire
from perf.brokers.base import Running
from perf.checks import Topics
from perf.errors import VerificationError
from perf.loads.base import LATENCY_FIGURES, CpuMeter, Figure, FreshTopic, Load, Sample, Trial, quantiles_ms
from perf.loads.durable import BOTH
from perf.loads.rdkafka import FIGURES, LINGER_MS, PARTITIONS, build_missing, drive, figures
from perf.process import memory
from perf.wire import call, connect, read_exactly

GROUP = "transactions"
COMMIT_MS = 100
VALUE = b"x" * 100
ONE_NODE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
OFFSETS_OF_ONE_NODE = {"offsets.topic.replication.factor": "1"}
READY_SECONDS_MAX = 120.0
REGISTERED_AT_ONCE = 500  # half of a block of producer ids
SHARDS_PROBED = 200  # ids: they are in all shards


class TransactionLoad(Load):
    """A load of transactions against one broker."""

    group = GROUP
    brokers = BOTH
    settings: Mapping[str, str] = MappingProxyType({**ONE_NODE, **OFFSETS_OF_ONE_NODE})

    def missing(self) -> str | None:
        return build_missing()

    def read_back(self, trial: Trial, topic: FreshTopic, records: int) -> None:
        """Raises VerificationError unless a reader of committed records finds so many."""
        drive(trial.broker, "consume", topic.name, records, "read_committed", partitions=topic.partitions)


class TransactionalProduce(TransactionLoad):
    figures = FIGURES

    def __init__(self, name: str, how: str, title: str) -> None:
        self.name = name
        self.title = f"librdkafka produce 100 B, 4 partitions, {title}"
        self._how = how

    def run(self, trial: Trial) -> Sample:
        records = trial.scaled(5_000_000, 500_000)
        with FreshTopic(trial, self.name, PARTITIONS) as topic:
            with CpuMeter(trial.broker) as cpu:
                arguments = ("produce", topic.name, records, len(VALUE), "none", "all", LINGER_MS, self._how)
                result = drive(trial.broker, *arguments)
            self.read_back(trial, topic, records)
        return figures(result, cpu.seconds)


class InSequence(TransactionLoad):
    name = "transactions-sequence"
    title = "transactions of one record of 100 B, one after the other: Produce and EndTxn"
    figures = (
        Figure("transactions_per_s", "transactions/s", "", "higher"),
        *LATENCY_FIGURES,
        Figure("cpu_us", "CPU per transaction", "us"),
    )

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(5_000, 500)
        with FreshTopic(trial, self.name, 1) as topic:
            with closing(wire.Client(trial.broker, topic.name, topic.name)) as client:
                seconds = []
                with CpuMeter(trial.broker) as cpu:
                    for _ in range(count):
                        began = time.perf_counter()
                        client.send([0], [VALUE])
                        client.end()
                        seconds.append(time.perf_counter() - began)
            self.read_back(trial, topic, count)
        return {
            "transactions_per_s": count / sum(seconds),
            **quantiles_ms(seconds),
            "cpu_us": cpu.seconds / count * 1e6,
        }


class WithOffsets(TransactionLoad):
    name = "transactions-offsets"
    title = "200 producers, transactions of one record and one offset, back to back"
    figures = (
        Figure("per_cpu_s", "transactions per CPU second", "", "higher"),
        Figure("transactions_per_s", "transactions/s", "", "higher"),
    )
    producers = 200

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(40_000, 4_000)
        with FreshTopic(trial, self.name, 1) as topic:
            clients = [
                wire.Client(trial.broker, f"{topic.name}-{number}", topic.name) for number in range(self.producers)
            ]
            find_group_coordinator(trial.broker, [f"{topic.name}-{number}" for number in range(self.producers)])
            senders = [wire.OffsetSender(client, client.transactional_id, VALUE) for client in clients]
            with CpuMeter(trial.broker) as cpu:
                seconds = wire.drive_all(senders, count)
            for client in clients:
                client.close()
            self.read_back(trial, topic, count)
        return {"per_cpu_s": count / cpu.seconds, "transactions_per_s": count / seconds}


def find_group_coordinator(broker: Running, groups: Sequence[str]) -> None:
    """Create the topic of the offsets, and wait until it is served."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    with closing(connect(broker.host, broker.port)) as connection:
        for group in groups[:1]:
            while int.from_bytes(call(connection, wire.find_coordinator(group, 0))[9:11], "big", signed=True):
                if time.monotonic() > deadline:
                    raise VerificationError(f"{broker.name}: no coordinator of {group}")
                time.sleep(0.05)  # nothing announces it


class ManyPartitions(TransactionLoad):
    name = "transactions-partitions"
    title = "commit over 1,000 partitions: EndTxn until the next transaction has begun on all of them"
    figures = (*LATENCY_FIGURES, Figure("cpu_ms", "CPU per transaction", "ms"))
    partitions = 1_000

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(50, 5)
        everywhere = range(self.partitions)
        with FreshTopic(trial, self.name, self.partitions) as topic:
            with closing(wire.Client(trial.broker, topic.name, topic.name)) as client:
                seconds = []
                client.send(everywhere, [VALUE])
                with CpuMeter(trial.broker) as cpu:
                    for _ in range(count):
                        began = time.perf_counter()
                        client.end()
                        client.send(everywhere, [VALUE])
                        seconds.append(time.perf_counter() - began)
                client.end()
            self.read_back(trial, topic, (count + 1) * self.partitions)
        return {**quantiles_ms(seconds), "cpu_ms": cpu.seconds / count * 1e3}


class Visible(TransactionLoad):
    name = "transactions-visible"
    title = "one record: EndTxn until a waiting fetch with read_committed has the record"
    figures = LATENCY_FIGURES

    def run(self, trial: Trial) -> Sample:
        count = trial.scaled(3_000, 300)
        with (
            FreshTopic(trial, self.name, 1) as topic,
            closing(wire.Client(trial.broker, topic.name, topic.name)) as client,
            closing(connect(trial.broker.host, trial.broker.port)) as reader,
        ):
            seconds = []
            stable = 0
            for _ in range(count):
                client.send([0], [VALUE])
                reader.sendall(wire.fetch(topic.name, stable, 30_000))
                began = time.perf_counter()
                client.connection.sendall(client.end_request())
                before = stable
                while (stable := wire.last_stable_offset(receive(reader), topic.name)) == before:
                    reader.sendall(wire.fetch(topic.name, stable, 30_000))  # a fetch may end before its time
                seconds.append(time.perf_counter() - began)
                client.ended(receive(client.connection))
                if stable != before + 2:
                    raise VerificationError(f"{trial.broker.name}: the stable offset is {stable} after {before}")
            self.read_back(trial, topic, count)
        return quantiles_ms(seconds)


class CommittedConsume(TransactionLoad):
    """A topic of transactions that is read with both isolation levels in turn; `aborted` percent of them are aborted.

    One read takes a tenth of a CPU second, too little for a ratio on a shared machine: so there are several.
    """

    figures = (
        Figure("ratio", "CPU, committed against uncommitted", "x"),
        Figure("committed_cpu_s_per_m", "CPU s per M records, committed", "s"),
        Figure("uncommitted_cpu_s_per_m", "CPU s per M records, uncommitted", "s"),
        Figure("records_per_s", "records/s, committed", "", "higher"),
    )
    batch = 500

    def __init__(self, aborted: int) -> None:
        self.name = f"transactions-consume-{aborted}"
        self.title = f"librdkafka consume 100 B, transactions of {self.batch} records, {aborted} % aborted"
        self._aborted = aborted

    def prepare(self, trial: Trial) -> None:
        Topics(trial.broker).create([self.name], 1)
        with closing(wire.Client(trial.broker, self.name, self.name)) as client:
            for number in range(self._transactions(trial)):
                client.send([0], [VALUE] * self.batch)
                client.end(committed=not self._is_aborted(number))

    def run(self, trial: Trial) -> Sample:
        numbers = range(self._transactions(trial))
        committed = sum(not self._is_aborted(number) for number in numbers) * self.batch
        records = {"read_committed": committed, "read_uncommitted": len(numbers) * self.batch}
        reads = trial.scaled(10, 1)
        used, seconds = dict.fromkeys(records, 0.0), dict.fromkeys(records, 0.0)
        for _ in range(reads):
            for level, count in records.items():
                with CpuMeter(trial.broker) as cpu:
                    seconds[level] += drive(trial.broker, "consume", self.name, count, level, partitions=1)["seconds"]
                used[level] += cpu.seconds
        return {
            "ratio": used["read_committed"] / used["read_uncommitted"],
            "committed_cpu_s_per_m": used["read_committed"] / records["read_committed"] / reads * 1e6,
            "uncommitted_cpu_s_per_m": used["read_uncommitted"] / records["read_uncommitted"] / reads * 1e6,
            "records_per_s": committed * reads / seconds["read_committed"],
        }

    def _is_aborted(self, number: int) -> bool:
        return bool(self._aborted) and number % (100 // self._aborted) == 1

    def _transactions(self, trial: Trial) -> int:
        return trial.scaled(4_000, 400)


class Loading(TransactionLoad):
    """Stopped cleanly, started on the same files again and again; the ids are in all shards."""

    name = "transactions-loading"
    title = (
        "100,000 transactional ids (quick: 5,000): start until InitProducerId answers for 200 of them, memory per id"
    )
    figures = (
        Figure("ready_ms", "until InitProducerId answers", "ms"),
        Figure("start_ms", "until ApiVersions answers", "ms"),
        Figure("bytes_per_id", "memory per id", "B"),
    )
    starts_broker = True

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("perf.loadgen") else "perf.loadgen is not built: run `make loadgen`"

    def prepare(self, trial: Trial) -> None:
        """The memory per id, and the log that each round loads."""
        broker = trial.kind.start(trial.directory, self.settings)
        self._wait_served(broker, SHARDS_PROBED)
        register(broker, [f"first-{number:06}" for number in range(500)])
        before = memory(broker.pid).resident
        ids = self._ids(trial)
        register(broker, ids)
        grown = memory(broker.pid).resident - before
        (trial.directory / "bytes-per-id").write_text(str(grown / len(ids)))
        broker.stop()

    def run(self, trial: Trial) -> Sample:
        broker = trial.kind.start(trial.directory, self.settings)
        spawned = time.monotonic() - broker.start_seconds
        self._wait_served(broker, SHARDS_PROBED)
        ready = time.monotonic() - spawned
        broker.stop()
        return {
            "ready_ms": ready * 1000,
            "start_ms": broker.start_seconds * 1000,
            "bytes_per_id": float((trial.directory / "bytes-per-id").read_text()),
        }

    def _ids(self, trial: Trial) -> list[str]:
        return [f"producer-{number:06}" for number in range(trial.scaled(100_000, 5_000))]

    def _wait_served(self, broker: Running, count: int) -> None:
        """Wait until InitProducerId is answered for ids in all shards."""
        for number in range(count):
            wire.Client(broker, f"first-{number:06}", "").close()


def register(broker: Running, ids: Sequence[str]) -> None:
    """InitProducerId of each id. Raises VerificationError.

    Some at a time: Kafka answers COORDINATOR_LOAD_IN_PROGRESS while it has no producer ids, and they are repeated.
    """
    loadgen = importlib.import_module("perf.loadgen")
    deadline = time.monotonic() + READY_SECONDS_MAX
    for first in range(0, len(ids), REGISTERED_AT_ONCE):
        requests = [wire.init_producer_id(each)[4:] for each in ids[first : first + REGISTERED_AT_ONCE]]
        while True:
            try:
                loadgen.run(broker.host, broker.port, requests, 10, 20, count=len(requests), error_at=9)
                break
            except (RuntimeError, OSError) as error:
                if (
                    not str(error).endswith(f"error code {KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS:d}")
                    or time.monotonic() > deadline
                ):
                    raise VerificationError(f"{broker.name}: InitProducerId: {error}") from error
                time.sleep(0.05)  # nothing announces it


def receive(connection: socket.socket) -> bytes:
    """One response without its size."""
    return read_exactly(connection, int.from_bytes(read_exactly(connection, 4), "big"))


LOADS = (
    TransactionalProduce("transactions-idempotent", "idempotent", "idempotent"),
    TransactionalProduce("transactions-produce", str(COMMIT_MS), f"a commit every {COMMIT_MS} ms"),
    InSequence(),
    WithOffsets(),
    ManyPartitions(),
    Visible(),
    CommittedConsume(0),
    CommittedConsume(10),
    Loading(),
)
