"""Random fetches of replicas, most of them wrong: each is answered, and a follower beside them copies everything."""

import logging
import random
from typing import Any

import pytest

from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.state.replica_sessions import SESSIONS_MAX
from tests.kit.scripted_follower import FOLLOWER, ScriptedFollower, hosted, lead
from tests.kit.seeds import seeds_of
from tests.kit.server import Hub, Wire, batch, produce_request, running

PARTITIONS = 4
STEPS = 150
SEEDS = 8
OTHER = 9  # also a follower
INT32, INT64 = 2**31 - 1, 2**63 - 1

Topic = FetchRequest.FetchTopic


class Requests:
    """Draws requests of replicas.

    Arguments:
        seed: of the choices.
        topic_id: of the topic with the partitions.
    """

    def __init__(self, seed: int, topic_id: bytes) -> None:
        self.random = random.Random(seed)
        self.topic_id = topic_id
        self.session_ids = [0, 1, -1, INT32]

    def draw(self, version: int) -> FetchRequest:
        pick = self.random.choice
        request = FetchRequest(
            max_wait_ms=pick((0, 0, 0, -1, INT32)),
            min_bytes=pick((0, 1, 1, -1, INT32)),
            max_bytes=pick((0, 1, 1000, INT32, -1)),
            isolation_level=pick((0, 1)),
            topics=[self.topic(version) for _ in range(pick((0, 1, 1, 3)))],
        )
        if version >= 7:
            request.session_id = pick(self.session_ids)
            request.session_epoch = pick((0, 0, 1, 2, -1, INT32))
            request.forgotten_topics_data = [self.forgotten(version) for _ in range(pick((0, 0, 1)))]
        replica_id, epoch = pick((OTHER, OTHER, 77, 0, INT32)), pick((-1, 0, 5, 6, INT64))
        if version >= 15:
            request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=epoch)
        else:
            request.replica_id = replica_id
        return request

    def topic(self, version: int) -> FetchRequest.FetchTopic:
        pick = self.random.choice
        asked = Topic(partitions=[self.partition(version) for _ in range(pick((0, 1, 2, 5)))])
        if version >= 13:
            asked.topic_id = pick((self.topic_id, self.topic_id, bytes(16), self.random.randbytes(16)))
        else:
            asked.topic = pick(("t", "t", "", "x" * 300))
        return asked

    def partition(self, version: int) -> FetchRequest.FetchTopic.FetchPartition:
        pick = self.random.choice
        asked = Topic.FetchPartition(
            partition=pick((0, 1, 2, 3, 3, -1, 99, INT32)),
            fetch_offset=pick((0, 0, 1, 2, 5, -1, INT64)),
            partition_max_bytes=pick((0, 1, 1000, INT32, -1)),
        )
        if version >= 5:
            asked.log_start_offset = pick((0, -1, 7, INT64))
        if version >= 9:
            asked.current_leader_epoch = pick((-1, -1, 0, 1, 2, INT32))
        if version >= 12:
            asked.last_fetched_epoch = pick((-1, -1, 0, 1, 2, INT32))
        return asked

    def forgotten(self, version: int) -> FetchRequest.ForgottenTopic:
        indexes = [self.random.choice((0, 1, 99, -1)) for _ in range(self.random.randrange(4))]
        name: dict[str, Any] = {"topic_id": self.topic_id} if version >= 13 else {"topic": "t"}
        return FetchRequest.ForgottenTopic(partitions=indexes, **name)


def catch_up(follower: ScriptedFollower, hub: Hub, ends: dict[tuple[str, int], int]) -> None:
    """Fetch until a follower has the records of all partitions."""
    for _ in range(10):
        follower.wire.send((follower.request(*((*key, end) for key, end in ends.items()), max_wait_ms=0), 17))
        hub.pump()
        assert follower.received() is not None
        ends.update(follower.ends)


@pytest.mark.parametrize("seed", seeds_of(SEEDS))
async def test_wrong_fetches_of_replicas_disturb_no_follower(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    print(f"KAFKALITE_SEED={seed}")
    caplog.set_level(logging.ERROR)
    async with running() as client:
        await client.create("t", partitions=PARTITIONS)
        partitions: list[Partition] = [hosted(client.broker, "t", index) for index in range(PARTITIONS)]
        for partition in partitions:
            await client.produce("t", batch(b"first"), partition=partition.index)
            lead(partition, (FOLLOWER, OTHER))
        hub, requests = Hub(client.broker), Requests(seed, client.topic_id("t"))
        listener = client.broker.config.listener_between_brokers
        wires = [Wire(hub, listener) for _ in range(3)]
        follower, producer = ScriptedFollower(hub, client.broker), Wire(hub)
        ends = {("t", index): 0 for index in range(PARTITIONS)}
        sent = [0] * len(wires)
        for step in range(STEPS):
            at, version = requests.random.randrange(len(wires)), requests.random.randrange(4, 19)
            if wires[at].closed or requests.random.random() < 0.05:
                wires[at].hang_up()
                wires[at] = Wire(hub, listener)
            wires[at].send((requests.draw(version), version))
            for response in wires[at].answers():
                sent[at] += 1
                requests.session_ids.append(response.session_id)
            if step % 10 == 0:
                producer.send((produce_request("t", (step % PARTITIONS, batch(b"more")), acks=1), 12))
                hub.pump()
                catch_up(follower, hub, ends)
        for wire in wires:
            wire.hang_up()
        hub.pump()
        catch_up(follower, hub, ends)
        for partition in partitions:
            assert partition.log is not None and isinstance(partition.role, Leader)
            assert ends["t", partition.index] == partition.log.log_end_offset
            assert [mark.session.replica_id for mark in partition.replica_sessions] == [FOLLOWER]
        assert sum(sent) > STEPS / 4
        assert [record for record in caplog.records if record.exc_info] == []
        assert len(client.broker.fetch_sessions.of_replicas) < SESSIONS_MAX  # type: ignore[arg-type]
