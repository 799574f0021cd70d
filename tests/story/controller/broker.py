"""The part of a broker that the controller sees: its image, the partitions that it hosts, and its logs on two disks.

Requests are checked as Kafka does: controller epoch, own broker epoch, leader epoch. A log has the id of its topic, and
a number that differs for each creation, so that the invariants see a lost log.
"""

from typing import NamedTuple, Protocol

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.controller.effects import (
    PartitionLeadership,
    PartitionMetadata,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from kafkalite.state.controller.values import Broker, Replicas

Errors = dict[TopicPartition, int]
DISKS = 2


class Log(NamedTuple):
    topic_id: bytes
    disk: int
    number: int


class Image(NamedTuple):
    topic_id: bytes
    state: PartitionMetadata


class Rules(Protocol):
    """What a broker reports to the invariants; states of a withdrawn deletion may begin again."""

    requested: set[bytes]

    def report(self, text: str) -> None: ...

    def log_deleted(self, key: TopicPartition, log: Log) -> None: ...

    def log_strayed(self, key: TopicPartition, log: Log) -> None: ...

    def next_log(self) -> int: ...

    def leads(self, key: TopicPartition, topic_id: bytes, leader_epoch: int, broker_id: int) -> None: ...


class BrokerDisks:
    """The logs of a broker: they survive its processes."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.strays: list[tuple[TopicPartition, Log]] = []
        self.failed: set[int] = set()
        self.led: dict[tuple[TopicPartition, bytes], tuple[int, int]] = {}  # broker epoch and leader epoch


class BrokerState:
    """The memory of a broker process.

    Arguments:
        broker_id: of the broker.
        disks: its log directories.
        rules: watch the logs and the image.
    """

    def __init__(self, broker_id: int, disks: BrokerDisks, rules: Rules) -> None:
        self.broker_id = broker_id
        self.disks = disks
        self.rules = rules
        self.epoch = 0  # of the current registration
        self.controller_epoch = 0
        self.image: dict[TopicPartition, Image] = {}
        self.brokers: tuple[Broker, ...] = ()
        self.hosted: dict[TopicPartition, PartitionLeadership] = {}
        self.isrs: dict[TopicPartition, tuple[Replicas, int]] = {}  # that leaders know, with the partition epoch
        self.introduced: set[tuple[int, int]] = set()  # controller epoch and broker epoch with an UpdateMetadata

    def check(self, controller_epoch: int, broker_epoch: int) -> int:
        """The error of a whole request."""
        if controller_epoch < self.controller_epoch:
            return Error.STALE_CONTROLLER_EPOCH
        if broker_epoch != self.epoch:
            return Error.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return Error.NONE

    def update_metadata(self, epoch: int, request: SendUpdateMetadata) -> int:
        if error := self.check(epoch, request.broker_epoch):
            return error
        self.introduced.add((epoch, self.epoch))
        self.brokers = request.brokers
        before = self.image
        self.image = {} if request.full else dict(before)
        for topic in request.topics:
            for state in topic.partitions:
                key = TopicPartition(topic.topic, state.partition)
                known = before.get(key)
                same = known is not None and known.topic_id == topic.topic_id
                if known is not None and same and topic.topic_id not in self.rules.requested:
                    self._check_newer(key, known.state, state)
                if state.leader == -2:
                    self.image.pop(key, None)
                else:
                    self.image[key] = Image(topic.topic_id, state)
        return Error.NONE

    def _check_newer(self, key: TopicPartition, known: PartitionMetadata, state: PartitionMetadata) -> None:
        if state.leader != -2 and state.partition_epoch < known.partition_epoch:
            self.rules.report(
                f"{key}: partition epoch {state.partition_epoch} after {known.partition_epoch} in an image"
            )

    def leader_and_isr(self, epoch: int, request: SendLeaderAndIsr) -> tuple[int, Errors]:
        if error := self.check(epoch, request.broker_epoch):
            return error, {}
        if (epoch, self.epoch) not in self.introduced:
            self.rules.report("LeaderAndIsr before UpdateMetadata")
        errors: Errors = {}
        named = set()
        for topic in request.topics:
            for state in topic.partitions:
                key = TopicPartition(topic.topic, state.partition)
                named.add(key)
                errors[key] = self._host(key, topic.topic_id, state)
        if request.full:
            for key in [key for key in self.disks.logs if key not in named]:
                self._stray(key)
        return Error.NONE, {key: error for key, error in errors.items() if error}

    def _host(self, key: TopicPartition, topic_id: bytes, state: PartitionLeadership) -> int:
        disks, log = self.disks, self.disks.logs.get(key)
        if log is not None and log.disk in disks.failed:
            self.hosted.pop(key, None)
            return Error.KAFKA_STORAGE_ERROR
        if log is not None and log.topic_id != topic_id:
            self._stray(key)
            log = None
        hosted = self.hosted.get(key)
        if hosted is not None and state.leader_epoch < hosted.leader_epoch:
            return Error.STALE_CONTROLLER_EPOCH
        if log is None:
            working = [disk for disk in range(DISKS) if disk not in disks.failed]
            if not working or (disks.failed and not state.is_new):
                return Error.KAFKA_STORAGE_ERROR
            number = self.rules.next_log()
            disks.logs[key] = Log(topic_id, working[number % len(working)], number)
        self.hosted[key] = state
        self.isrs[key] = state.isr, state.partition_epoch
        if state.leader == self.broker_id and topic_id not in self.rules.requested:
            self._lead(key, topic_id, state.leader_epoch)
        return Error.NONE

    @property
    def led(self) -> list[TopicPartition]:
        """The partitions that this broker leads."""
        return sorted(key for key, state in self.hosted.items() if state.leader == self.broker_id)

    def _lead(self, key: TopicPartition, topic_id: bytes, leader_epoch: int) -> None:
        """A registration leads in no leader epoch of an earlier one, whose records may be lost (KIP-320)."""
        registration, led = self.disks.led.get((key, topic_id), (self.epoch, leader_epoch))
        if registration != self.epoch and leader_epoch <= led:
            self.rules.report(f"{key} is led in the leader epoch {leader_epoch} of an earlier registration")
        self.disks.led[key, topic_id] = self.epoch, leader_epoch
        self.rules.leads(key, topic_id, leader_epoch, self.broker_id)

    def _stray(self, key: TopicPartition) -> None:
        log = self.disks.logs.pop(key)
        self.disks.strays.append((key, log))
        self.rules.log_strayed(key, log)
        self.hosted.pop(key, None)

    def stop_replica(self, epoch: int, request: SendStopReplica) -> tuple[int, Errors]:
        if error := self.check(epoch, request.broker_epoch):
            return error, {}
        errors: Errors = {}
        for topic in request.topics:
            for stop in topic.partitions:
                key = TopicPartition(topic.topic, stop.partition)
                self.hosted.pop(key, None)
                log = self.disks.logs.get(key)
                if log is None or not stop.delete:
                    continue
                if log.disk in self.disks.failed:
                    errors[key] = Error.KAFKA_STORAGE_ERROR
                    continue
                del self.disks.logs[key]
                self.rules.log_deleted(key, log)
        return Error.NONE, errors

    def fail_disk(self, disk: int) -> None:
        """A log directory fails: its partitions are offline."""
        self.disks.failed.add(disk)
        for key in [key for key in self.hosted if self.disks.logs[key].disk == disk]:
            del self.hosted[key]
