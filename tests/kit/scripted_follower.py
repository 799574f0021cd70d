"""A follower on raw frames: it fetches as a replica, and copies what it receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.records import batches
from kafkalite.server.running.running_broker import RunningBroker
from tests.kit.server import Hub, Wire

LEADER = 1
FOLLOWER = 8
BROKER_EPOCH = 5
VERSION = 17

Topic = FetchRequest.FetchTopic
Asked = Topic.FetchPartition


def hosted(broker: RunningBroker, topic: str, index: int = 0) -> Partition:
    found = broker.replicas.partition(topic, bytes(16), index, by_id=False)
    assert isinstance(found, Partition)
    return found


def lead(partition: Partition, followers: Sequence[int] = (FOLLOWER,), isr: Sequence[int] | None = None) -> Leader:
    """Begin a leader epoch of a broker (its id: `LEADER`) with followers, by default all of them in the ISR."""
    in_sync = (LEADER, *(followers if isr is None else isr))
    state = PartitionImage((LEADER, *followers), in_sync, LEADER, partition.leader_epoch + 1)
    partition.lead(state, lambda: None)
    assert isinstance(partition.role, Leader)
    return partition.role


class ScriptedFollower:
    """A replica that fetches partitions of a broker over one connection.

    Arguments:
        hub: of the broker.
        broker: the leader.
        replica_id, broker_epoch: of the follower.
        version: of Fetch.
    """

    def __init__(
        self,
        hub: Hub,
        broker: RunningBroker,
        replica_id: int = FOLLOWER,
        broker_epoch: int = BROKER_EPOCH,
        version: int = VERSION,
    ) -> None:
        self.wire = Wire(hub, broker.config.listener_between_brokers)
        self.broker = broker
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.ends: dict[tuple[str, int], int] = {}
        self.watermarks: dict[tuple[str, int], int] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.values: dict[tuple[str, int], list[bytes | None]] = {}

    def request(
        self,
        *parts: tuple[str, int, int],
        forgotten: Sequence[tuple[str, int]] = (),
        max_wait_ms: int = 60_000,
        min_bytes: int = 1,
        **fields: Any,
    ) -> FetchRequest:
        """The next fetch of the session, which names (topic, index, offset). `fields`: of the request or partitions."""
        of_partition = {
            name: fields.pop(name, default)
            for name, default in (
                ("current_leader_epoch", -1),
                ("last_fetched_epoch", -1),
                ("log_start_offset", 0),
                ("partition_max_bytes", 1 << 20),
            )
        }
        topics: list[FetchRequest.FetchTopic] = []
        for topic, index, offset in parts:
            asked = Asked(partition=index, fetch_offset=offset, **of_partition)
            topics.append(Topic(topic=topic, topic_id=self._id(topic), partitions=[asked]))
        gone = [FetchRequest.ForgottenTopic(topic=t, topic_id=self._id(t), partitions=[at]) for t, at in forgotten]
        state = FetchRequest.ReplicaState(replica_id=self.replica_id, replica_epoch=self.broker_epoch)
        more = {"replica_state": state} if self.version >= 15 else {"replica_id": self.replica_id}
        fields.setdefault("session_id", self.session_id)
        fields.setdefault("session_epoch", self.epoch)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            topics=topics,
            forgotten_topics_data=gone,
            **more,
            **fields,
        )

    def _id(self, topic: str) -> bytes:
        image = self.broker.image.topics.get(topic)
        return bytes(16) if self.version < 13 else topic.encode().ljust(16)[:16] if image is None else image.topic_id

    def send(self, *parts: tuple[str, int, int], **fields: Any) -> None:
        """Send the next fetch."""
        self.wire.send((self.request(*parts, **fields), self.version))

    def received(self) -> FetchResponse | None:
        """The response, if it has arrived; its records and offsets are noted."""
        found = self.wire.answers()
        assert len(found) <= 1
        return self._note(found[0]) if found else None

    async def answer(self) -> FetchResponse:
        """The response, awaited; its records and offsets are noted."""
        return self._note(await self.wire.answer())

    async def fetch(self, *parts: tuple[str, int, int], **fields: Any) -> FetchResponse:
        """Fetch, and wait for the response."""
        self.send(*parts, **fields)
        return await self.answer()

    def _note(self, response: FetchResponse) -> FetchResponse:
        self.session_id = response.session_id
        self.epoch = self.epoch + 1 if response.session_id and not response.error_code else 0
        for (topic, index), data in self.parts(response).items():
            if data.error_code:
                continue
            key = (topic, index)
            self.watermarks[key], self.log_starts[key] = data.high_watermark, data.log_start_offset
            for each in batches(data.records or b""):
                self.values.setdefault(key, []).extend(record.value for record in each)
                self.ends[key] = each.last_offset + 1
        return response

    def parts(self, response: FetchResponse) -> dict[tuple[str, int], Any]:
        """The partitions of a response, by topic name and index."""
        names = {topic.topic_id: topic.name for topic in self.broker.image.topics.values()}
        return {
            (
                each.topic or names.get(each.topic_id, each.topic_id.decode("latin-1").strip()),
                data.partition_index,
            ): data
            for each in response.responses
            for data in each.partitions
        }
