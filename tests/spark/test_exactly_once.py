"""The option `exactlyOnce` of the sink: each micro-batch is visible once to readers of committed records.

`attempts` and `committer` are called as tasks and drivers of Spark do it, in any order. One query runs in Spark; those
whose processes are killed are in test_sink_kill_matrix.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from kafkalite_sdk.admin import NewTopic, Upgrade
from kafkalite_sdk.blocking import Admin, Consumer, Producer
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.errors import DecidedTransactionLostError, UndecidedBatchError
from pyspark_kafkalite.exactly_once import attempts
from pyspark_kafkalite.exactly_once.attempts import Attempt, WrittenOnce
from pyspark_kafkalite.exactly_once.committer import BatchCommitter
from pyspark_kafkalite.exactly_once.decision_log import DecisionLog
from pyspark_kafkalite.exactly_once.decisions import Decision
from pyspark_kafkalite.sink_options import SinkOptions, sink_options

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.kit.brokers import broker_under_test
from tests.spark.rig import Rig

QUERY = "query"
APACHE = "3.9"
OLDER = ("1", "0", APACHE)
"""Versions of transactions whose clients use TV1: levels of `transaction.version`, and Apache Kafka 3.9."""
SETTINGS = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
Write = Callable[..., WrittenOnce]


class CrashedError(Exception):
    """The driver has ended in a step."""


class CrashedCommitter(BatchCommitter):
    """A driver that ends after its decision."""

    def _end(self, query: str, decision: Decision) -> None:
        raise CrashedError


class Sink:
    """A topic, and what tasks and drivers do with it.

    Arguments:
        address: of the broker.
        topic: that is written.
        timeout_ms: of transactions.
    """

    def __init__(self, address: str, topic: str, timeout_ms: int = 60_000) -> None:
        given = {"kafka.bootstrap.servers": address, "topic": topic, "kafka.transaction.timeout.ms": str(timeout_ms)}
        self.address = address
        self.topic = topic
        self.options: SinkOptions = sink_options(
            {**given, "exactlyOnce": "true", "decisionTopic": f"{topic}-decisions"}
        )
        self.log = DecisionLog(self.options.shared, f"{topic}-decisions")
        self.committer = BatchCommitter(self.options, self.log)

    def write(self, batch: int, *values: bytes, partition: int = 0, number: int = 0) -> WrittenOnce:
        """An attempt of a task."""
        tables = iter([(self.topic, pyarrow.record_batch({"value": [each]})) for each in values])
        attempt = Attempt(QUERY, batch, partition, number)
        return attempts.write_attempt(attempt, self.options.client, self.log, tables)

    def crash_after_decision(self, batch: int, *written: WrittenOnce) -> None:
        with pytest.raises(CrashedError):
            CrashedCommitter(self.options, self.log).commit(written, batch)

    def read(self) -> list[bytes]:
        """The committed values, sorted. Raises: an open transaction holds them back."""
        partition = TopicPartition(self.topic, 0)
        found: list[bytes] = []
        options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Admin(self.address) as admin, Consumer(self.address, **options) as consumer:
            assert not admin.transactions.list(states=["Ongoing"], pattern=f".*{QUERY}.*")
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            while consumer.position(partition) < end:
                found += [each.value or b"" for each in consumer.poll(0.1)]
        return sorted(found)


@contextmanager
def broker_of(level: str, directory: Path) -> Iterator[str]:
    """A broker with another `transaction.version`, or Apache Kafka 3.9; its address."""
    if level == APACHE:
        with broker_under_test(directory, SETTINGS, "kafka-zookeeper") as running:
            yield running.address
        return
    with BrokerThread() as broker, Admin(broker.address) as admin:
        admin.cluster.update_features({"transaction.version": int(level)}, upgrade=Upgrade.UNSAFE_DOWNGRADE).check()
        yield broker.address


@pytest.fixture(
    params=["2", *(pytest.param(each, marks=[pytest.mark.torture, pytest.mark.long_form]) for each in OLDER)]
)
def sink(request: pytest.FixtureRequest, kafkalite_broker: BrokerThread, kafkalite_topic: str) -> Iterator[Sink]:
    """A topic of a broker with a `transaction.version`; others than 2 in the long form."""
    if request.param == "2":
        yield Sink(kafkalite_broker.address, kafkalite_topic)
    else:
        with broker_of(request.param, request.getfixturevalue("tmp_path")) as address:
            yield Sink(address, kafkalite_topic)
            close_clients()
    close_clients()


@pytest.mark.parametrize("level", OLDER[:2])
def test_batches_are_decided_once_with_older_versions_of_transactions(level: str, tmp_path: Path) -> None:
    """TV1: a commit does not change the epoch; each attempt has another one by its InitProducerId."""
    with broker_of(level, tmp_path) as address:
        sink = Sink(address, "orders")
        with Admin(address) as admin:
            admin.topics.create(NewTopic("orders", 1)).check()
            assert admin.cluster.features().finalized.get("transaction.version", 0) == int(level)
        sink.write(0, b"a", number=1)  # not counted
        sink.committer.commit([sink.write(0, b"a")], 0)
        sink.crash_after_decision(1, sink.write(1, b"b"), sink.write(1, b"c", partition=1))
        for _ in range(2):  # the second one repeats a batch that is complete
            sink.committer.commit([sink.write(1, b"b"), sink.write(1, b"c", partition=1)], 1)
        sink.committer.abort([sink.write(2, b"d"), None])
        sink.committer.commit([sink.write(2, b"d")], 2)
        assert sink.read() == [b"a", b"b", b"c", b"d"]
        close_clients()


def test_attempts_that_spark_does_not_count_are_aborted_and_write_nothing_afterwards(sink: Sink) -> None:
    loser = sink.write(0, b"a", number=1)
    name = attempts.id_prefix(QUERY) + "0-2"
    late: Producer[bytes, bytes]
    with Producer(**sink.options.client, transactional_id=name) as late:
        late.begin_transaction()
        late.send(sink.topic, b"a").result()
        winners = [sink.write(0, b"a"), sink.write(0, b"b", partition=1)]
        sink.committer.commit(winners, 0)
        with pytest.raises(KafkaError):
            late.send(sink.topic, b"a").result()
    assert loser.transaction is not None and loser.rows == 1
    assert sink.read() == [b"a", b"b"]


def test_an_attempt_of_a_decided_batch_writes_nothing_and_the_driver_completes_it(sink: Sink) -> None:
    sink.committer.commit([sink.write(0, b"a")], 0)
    sink.crash_after_decision(1, sink.write(1, b"b"), sink.write(1, b"c", partition=1))
    for _ in range(2):  # the second one repeats a batch that is complete
        repeated = [sink.write(1, b"b"), sink.write(1, b"c", partition=1)]
        assert [each.transaction for each in repeated] == [None, None]
        sink.committer.commit(repeated, 1)
    sink.committer.commit([sink.write(2, b"d")], 2)
    assert sink.read() == [b"a", b"b", b"c", b"d"]


def test_a_transaction_that_has_ended_or_has_no_time_left_is_not_decided(sink: Sink) -> None:
    fenced = sink.write(0, b"a")
    again = sink.write(0, b"a")  # another driver, or a later attempt with the same number
    with pytest.raises(UndecidedBatchError, match=r"transaction kafkalite-spark-query-0-0 has ended: .* again"):
        sink.committer.commit([fenced], 0)
    sink.committer.commit([again], 0)
    short = Sink(sink.address, sink.topic, timeout_ms=1000)
    written = short.write(1, b"b")
    with Admin(sink.address) as admin:
        while not admin.transactions.list(states=["Ongoing"], pattern=".*query.*", running_longer_than_ms=901):
            pass
    with pytest.raises(UndecidedBatchError, match=r"ms left of its timeout of 1000 ms|has ended"):
        short.committer.commit([written], 1)
    sink.committer.commit([sink.write(1, b"b")], 1)
    assert sink.read() == [b"a", b"b"]


def test_a_decided_transaction_that_is_lost_stops_the_query_and_is_named(sink: Sink) -> None:
    sink.crash_after_decision(0, sink.write(0, b"a"), sink.write(0, b"b", partition=1))
    name = attempts.id_prefix(QUERY) + "1-0"
    with Admin(sink.address) as admin:
        admin.transactions.terminate(name)
    for _ in range(2):
        with pytest.raises(DecidedTransactionLostError, match=f"batch 0 .* 1 of its 2 transactions .* {name}"):
            sink.committer.commit([sink.write(0, b"a")], 0)
    sink.committer.commit([sink.write(1, b"c")], 1)  # after a run without exactlyOnce
    assert sink.read() == [b"a", b"c"]


def test_of_two_drivers_one_decides(sink: Sink) -> None:
    """Both have a transaction for each partition, and neither has seen a decision."""
    first, second = sink.write(0, b"a"), sink.write(0, b"a", number=1)

    class Overtaken(BatchCommitter):
        def _check_open(self, *arguments: object) -> None:
            sink.committer.commit([first], 0)

    with pytest.raises(UndecidedBatchError, match="another driver has decided batch 0"):
        Overtaken(sink.options, sink.log).commit([second], 0)
    sink.committer.commit([sink.write(1, b"b")], 1)
    with pytest.raises(UndecidedBatchError, match="batch 1 is decided, so another driver has continued"):
        sink.committer.commit([second], 0)
    assert sink.read() == [b"a", b"b"]


def test_a_failed_batch_is_aborted_unless_its_commit_may_have_decided(sink: Sink) -> None:
    sink.committer.abort([sink.write(0, b"a"), None])
    assert sink.read() == []
    decided = sink.write(0, b"a")
    sink.crash_after_decision(0, decided)
    sink.committer.abort([decided])
    sink.committer.commit([sink.write(0, b"a")], 0)
    assert sink.read() == [b"a"]


def test_a_batch_without_rows_has_no_decision(sink: Sink) -> None:
    empty = sink.write(0)
    assert empty == WrittenOnce(0, QUERY, None)
    sink.committer.commit([empty], 0)
    sink.committer.commit([], 1)
    assert sink.log.last(QUERY, 2) is None


def test_decisions_of_many_queries_are_found(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafkalite.exactly_once.decision_log.REACH", 2)
    sink.log.create()
    sink.log.append(QUERY, Decision(3))
    for number in range(20):
        sink.log.append(f"other-{number}", Decision(number))
    found = sink.log.last(QUERY, 4)
    assert found is not None and (found.batch, found.complete, found.offset) == (3, False, 0)


class Copy:
    """A query that copies the topic of the rig to another one, exactly once.

    Arguments:
        rig: of the test.
        target: topic that is written.
        checkpoint: directory of the query.
    """

    def __init__(self, rig: Rig, target: str, checkpoint: Path) -> None:
        self.rig = rig
        self.target = target
        self.checkpoint = checkpoint

    def run(self) -> None:
        """Copy what is in the log. Raises: the error of the query."""
        frame = self.rig.stream(startingOffsets="earliest", maxOffsetsPerTrigger="60", minPartitions="3")
        writer = frame.select("key", "value").writeStream.format("kafkalite")
        given = {"kafka.bootstrap.servers": self.rig.broker.address, "topic": self.target, "exactlyOnce": "true"}
        writer = writer.options(**given).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    def found(self, isolation: str = "read_committed") -> list[int]:
        """The numbers in the target, sorted."""
        rows = self.rig.read(subscribe=self.target, isolation=isolation).select("value").collect()
        return sorted(int(row.value) for row in rows)


def test_each_batch_of_a_query_is_committed_once(
    rig: Rig, kafkalite_topic_factory: Callable[..., str], tmp_path: Path
) -> None:
    copy = Copy(rig, kafkalite_topic_factory(partitions=2), tmp_path / "checkpoint")
    for count in (90, 100):
        rig.send(range(len(copy.found()), count))
        copy.run()
        assert copy.found() == copy.found("read_uncommitted") == list(range(count))
