"""The brokers and partitions to which markers are sent: each call is answered when the test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkalite.cluster.broker_peers import CallResult
from kafkalite.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.coordinators.transaction.marker_requests import topics_of
from kafkalite.coordinators.transaction.marker_sender import MarkerSender
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafkalite.records.control import TransactionMarker
from kafkalite.state.effects import Now
from kafkalite.state.transactions.machine import TransactionMachine
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.partitions import TransactionPartitions
from kafkalite.state.transactions.requests import SendMarkers
from kafkalite.state.transactions.states import TransactionState, TransactionVersion
from kafkalite.testing.virtual_clock import SeededRandom, VirtualClock

OWN = 1
Then = Callable[[dict[TopicPartition, int]], object]


class Call(NamedTuple):
    """A request in flight: to a broker, with markers by their partitions."""

    broker_id: int
    markers: dict[TransactionMarker, list[TopicPartition]]
    then: Callable[[CallResult], object]
    version_max: int | None

    def answer(self, *errors: tuple[int, tuple[str, int], int]) -> None:
        """Respond with these errors, each of a producer id and a partition; 0 for others."""
        found = {(producer_id, *partition): error for producer_id, partition, error in errors}
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult
        topic_result = result.WritableTxnMarkerTopicResult
        markers = []
        for marker, partitions in self.markers.items():
            topics = [
                topic_result(
                    name=topic.name,
                    partitions=[
                        topic_result.WritableTxnMarkerPartitionResult(
                            partition_index=index,
                            error_code=found.get((marker.producer_id, topic.name, index), 0),
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in topics_of(partitions)
            ]
            markers.append(result(producer_id=marker.producer_id, topics=topics))
        self.then(CallResult(WriteTxnMarkersResponse(markers=markers)))

    def fail(self, error: int = Error.COORDINATOR_NOT_AVAILABLE) -> None:
        self.then(CallResult(None, error))


class World:
    """A coordinator on broker 1 with one shard, and the rest of the cluster. It is its own writer, peers and replicas.

    Attributes:
        calls: requests in flight.
        written: (marker, partition) of this broker, in order.
        errors: of partitions of this broker, 0 for others.
        tree: number of partitions by topic; topics of the image, unless a test changes it.
        tree_reads: reads of the tree that a test completes; None = they end at once.
        continued: the producers whose next transaction may begin: transactional id, producer id and epoch.
        refusal: of the shard: each command fails with it.
    """

    def __init__(self, topics: dict[str, list[int]], brokers: Iterable[int] = (1, 2, 3), seed: int = 1) -> None:
        self.broker_id = OWN
        self.clock = VirtualClock()
        self.random = SeededRandom(seed)
        self.leaders = topics
        self.brokers = set(brokers)
        self.calls: list[Call] = []
        self.written: list[tuple[TransactionMarker, TopicPartition]] = []
        self.errors: dict[TopicPartition, int] = {}
        self.tree: dict[str, int] = {name: len(leaders) for name, leaders in topics.items()}
        self.tree_reads: list[Callable[[], object]] | None = None
        self.level = 2
        self.refusal = 0
        self.machine = TransactionMachine()
        self.completed: list[str] = []
        self.continued: list[tuple[str, int, int]] = []
        self.peers = self.marker_writer = self.replicas = self
        self.sender = MarkerSender(self, self.submit, lambda: self.level)  # type: ignore[arg-type]

    @property
    def image(self) -> ClusterImage:
        topics = {
            name: TopicImage(name, bytes(16), tuple(PartitionImage((each,), (each,), each, 0) for each in leaders))
            for name, leaders in self.leaders.items()
        }
        return ClusterImage("c", brokers=LiveBrokers(map(BrokerImage, sorted(self.brokers))), topics=topics)

    def prepare(
        self, name: str, *partitions: tuple[str, int], commit: bool = True, epoch: int = 5, next_producer_id: int = -1
    ) -> None:
        """Decide a transaction and send its markers; `next_producer_id`: of the next one, -1 = the same."""
        wanted = TransactionPartitions.of(TopicPartition(*each) for each in partitions)
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        producer_id = int(name)
        metadata = TransactionMetadata(name, producer_id, epoch, 1_000, 0, state, wanted, version=2)
        self.machine.apply(metadata._replace(next_producer_id=next_producer_id))
        request = SendMarkers(name, producer_id, epoch, commit, wanted, TransactionVersion.TV2)
        self.sender.send(0, request, coordinator_epoch=3)

    def partition_for(self, _transactional_id: str) -> int:
        return 0

    def partitions(self) -> list[int]:
        return [0]

    def submit(self, partition: int, command: Any, completion: Any, *, is_query: bool = False) -> None:
        """Run a command of the shard at once."""
        if self.refusal:
            completion.fail(self.refusal)
            return
        effects = command(self.machine, completion, Now(0, 0))
        for record in effects.records:
            self.machine.apply(record)
            self.completed.append(record.transactional_id)
        for answer in effects.answers if is_query else ():
            completion.answer(answer.result)
        if not is_query:
            completion.answer(None)

    # what the sender uses

    def transaction_completed(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.continued.append((transactional_id, producer_id, epoch))

    def write(self, marker: TransactionMarker, partitions: Iterable[TopicPartition], then: Then) -> None:
        found = {each: self.errors.get(each, 0) for each in partitions}
        self.written += [(marker, each) for each, error in found.items() if not error]
        then(found)

    def call(
        self, broker_id: int, request: WriteTxnMarkersRequest, then: Any, *, version_max: int | None = None
    ) -> None:
        markers = {
            TransactionMarker(
                each.producer_id,
                each.producer_epoch,
                each.transaction_result,
                each.coordinator_epoch,
                each.transaction_version,
            ): [TopicPartition(topic.name, index) for topic in each.topics for index in topic.partition_indexes]
            for each in request.markers
        }
        assert all(each.broker_id != broker_id for each in self.calls), "one request in flight"
        self.calls.append(Call(broker_id, markers, then, version_max))

    def take(self) -> Call:
        """The oldest request in flight, which ends now."""
        return self.calls.pop(0)

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        if self.tree_reads is None:
            then(self.tree.get(topic, 0))
        else:
            self.tree_reads.append(lambda: then(self.tree.get(topic, 0)))

    def write_pending(self) -> None:
        """Everything is written at once."""

    def image_changed(self) -> None:
        self.sender.image_changed()
