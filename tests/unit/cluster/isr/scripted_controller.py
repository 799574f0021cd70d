"""A controller whose responses a test writes, and a broker that leads partitions with followers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kafkalite.cluster.isr.isr_requests import IsrRequests
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.config.topic import TopicConfig
from kafkalite.metrics import Registry
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.testing.virtual_clock import VirtualClock
from tests.unit.cluster.partition.test_flush import Rig
from tests.unit.storage.damage import batch

OWN, OWN_EPOCH = 1, 77
LAG_MS = Rig.replica_lag_max_ms
THREE = (1, 2, 3)

TopicResults = AlterPartitionResponse.TopicData
PartitionResult = TopicResults.PartitionData
RequestedPartition = AlterPartitionRequest.TopicData.PartitionData


class ScriptedController:
    """Keeps each request until the test responds."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self._then: Callable[[AlterPartitionResponse | None], object] | None = None

    def alter_partition(
        self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse | None], object]
    ) -> None:
        assert self._then is None, "a second request in flight"
        self.requests.append(request)
        self._then = then

    @property
    def in_flight(self) -> bool:
        return self._then is not None

    @property
    def asked(self) -> dict[int, RequestedPartition]:
        """The partitions of the last request, by index."""
        return {each.partition_index: each for topic in self.requests[-1].topics for each in topic.partitions}

    def respond(self, response: AlterPartitionResponse | None) -> None:
        then, self._then = self._then, None
        assert then is not None, "no request in flight"
        then(response)

    def reject(self, error: int) -> None:
        """Respond with an error of the request."""
        self.respond(AlterPartitionResponse(error_code=error, topics=[]))

    def apply(self, eligible: tuple[int, ...] = (), **errors: int) -> None:
        """Respond to all partitions: with the requested ISR and the next epoch, or with the error of `p<index>`."""
        topics = [
            TopicResults(
                topic_id=topic.topic_id, partitions=[result(each, errors, eligible) for each in topic.partitions]
            )
            for topic in self.requests[-1].topics
        ]
        self.respond(AlterPartitionResponse(error_code=0, topics=topics))


def result(asked: RequestedPartition, errors: dict[str, int], eligible: tuple[int, ...]) -> PartitionResult:
    return PartitionResult(
        partition_index=asked.partition_index,
        error_code=errors.get(f"p{asked.partition_index}", 0),
        leader_id=OWN,
        leader_epoch=asked.leader_epoch,
        isr=asked.new_isr,
        partition_epoch=asked.partition_epoch + 1,
        eligible_replicas=list(eligible),
    )


class LeadingBroker:
    """Broker 1, which leads three partitions with the replicas 1, 2 and 3."""

    def __init__(
        self, path: Path, config: TopicConfig | None = None, isr: tuple[int, ...] = THREE, led: int = 1
    ) -> None:
        self.rig = Rig(path, config or replace(TopicConfig(), min_insync_replicas=2))
        assert isinstance(self.rig.clock, VirtualClock)
        self.clock = self.rig.clock
        self.controller = ScriptedController()
        self.requests = IsrRequests(self.clock, self.controller, OWN, lambda: OWN_EPOCH, lambda: LAG_MS, Registry())
        self.rig.isr_requests = self.requests
        self.rig.live = {2, 3}
        self.partitions: list[Partition] = self.rig.partitions[:led]
        self.partition = self.partitions[0]
        for partition in self.partitions:
            self.lead(1, 7, isr, partition)

    def lead(self, epoch: int, partition_epoch: int, isr: tuple[int, ...], partition: Partition | None = None) -> None:
        state = PartitionImage(THREE, isr, OWN, epoch, partition_epoch)
        (partition or self.partition).lead(state, lambda: None)

    @property
    def leader(self) -> Leader:
        assert isinstance(self.partition.role, Leader)
        return self.partition.role

    def pass_ms(self, by_ms: float = 0) -> None:
        self.clock.advance(by_ms)

    def append(self, name: str = "all", acks: int = -1, timeout_ms: int = 120_000) -> list[tuple[str, int, int]]:
        """Append a record, and end the loop iteration; returns what was answered since the last time."""

        def done(append: Append) -> None:
            self.rig.outcomes.append((name, append.error, append.base_offset))

        self.partition.append(Append(memoryview(batch(1)), acks, done, timeout_ms))
        self.rig.replicas.write_pending()
        return self.rig.answers()

    def fetch(self, replica_id: int, offset: int, broker_epoch: int = 5, partition: Partition | None = None) -> None:
        """A fetch of a follower; it ends the loop iteration."""
        leader = (partition or self.partition).role
        assert isinstance(leader, Leader)
        now_ms = round(self.clock.monotonic() * 1000)
        assert leader.follower_fetched(replica_id, broker_epoch, offset, 0, now_ms) == 0
        self.pass_ms()
