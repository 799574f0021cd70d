"""The same random requests of one transactional producer on two brokers: errors, epochs and batches must be equal.

Producer ids differ: a side numbers its ids in the order in which they appear in its responses. After each EndTxn, and
each InitProducerId that aborts a transaction, a side waits until the markers are written; so no answer depends on time.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import Any, NamedTuple

from kafkalite.cluster.partition.verification import UNKNOWN_PRODUCER
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.records import batches
from kafkalite.records.control import control_type
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request
from tests.kit.transactions.wire import pause

TOPIC = "differential"
PARTITIONS = 3
GROUP = "differential"
LOADING = (KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, KafkaErrorCode.NOT_COORDINATOR)  # after the topic was created
TIMEOUT_MS = 60_000
DEADLINE_S = 60.0
CLIENTS = {1: (4, 11, 4), 2: (5, 12, 5)}
"""The versions of InitProducerId, Produce and EndTxn of a client of each version of transactions."""
TopicPartitions = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

RUNS = itertools.count()


class Producer(NamedTuple):
    """A producer id by its number, -1 = none, and an epoch."""

    number: int = -1
    epoch: int = -1


class Side:
    """One broker, as a sequence uses it.

    Arguments:
        peer: a connection to it.
        version: of transactions, 1 or 2.
    """

    def __init__(self, peer: ClientConnection, version: int) -> None:
        self.peer = peer
        self._init, self._produce, self._end = CLIENTS[version]
        self.transactional_id = ""
        self.ids: list[int] = []
        self.starts: dict[int, int] = {}

    async def prepare(self) -> None:
        """Create the topics."""
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        await self.peer.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))

    async def begin(self, transactional_id: str) -> None:
        """Begin a sequence: find the coordinator, and where the partitions end."""
        self.transactional_id, self.ids = transactional_id, []
        end = time.monotonic() + DEADLINE_S
        request = FindCoordinatorRequest(key=transactional_id, key_type=1)
        while (await self.peer.call(request, version_max=3)).error_code:
            assert time.monotonic() < end, "no coordinator"
            await pause(0.05)
        for index in range(PARTITIONS):
            self.starts[index] = await self.end_offset(index)

    async def end_offset(self, partition: int) -> int:
        """The last stable offset, once the partition has a leader."""
        asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic])
        end = time.monotonic() + DEADLINE_S
        while True:
            (found,) = (await self.peer.call(request, version_max=5)).topics[0].partitions
            if not found.error_code:
                return int(found.offset)
            assert time.monotonic() < end, f"no leader: {found.error_code}"
            await pause(0.05)

    def _id(self, producer: Producer) -> int:
        """The producer id of a number; an id that was never assigned for an unknown one."""
        return self.ids[producer.number] if 0 <= producer.number < len(self.ids) else 9_999_999

    def _known(self, producer_id: int, epoch: int) -> Producer:
        if producer_id < 0:
            return Producer()
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return Producer(self.ids.index(producer_id), epoch)

    async def init(self, producer: Producer | None) -> tuple[int, Producer]:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        if producer is not None:
            request.producer_id, request.producer_epoch = self._id(producer), producer.epoch
        answer = await self._quiet(request, self._init)
        return answer.error_code, self._known(answer.producer_id, answer.producer_epoch)

    async def end(self, producer: Producer, commit: bool) -> tuple[int, Producer]:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._id(producer),
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = await self._quiet(request, self._end)
        return answer.error_code, self._known(answer.producer_id, answer.producer_epoch)

    async def _quiet(self, request: Any, version: int) -> Any:
        """Send a request, and wait until no transaction is being completed."""
        end = time.monotonic() + DEADLINE_S
        while (answer := await self.peer.call(request, version_max=version)).error_code in LOADING:
            assert time.monotonic() < end, "the coordinator does not load"
            await pause(0.05)
        while (await self.state())[0].startswith("Prepare"):
            assert time.monotonic() < end, "the transaction is not completed"
            await pause(0.002)
        return answer

    async def add(self, producer: Producer, partition: int) -> tuple[int, ...]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._id(producer),
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[TopicPartitions(name=TOPIC, partitions=[partition])],
        )
        answer = await self.peer.call(request, version_max=3)
        found = answer.results_by_topic_v3_and_below
        return tuple(each.partition_error_code for topic in found for each in topic.results_by_partition)

    async def add_offsets(self, producer: Producer) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._id(producer),
            producer_epoch=producer.epoch,
            group_id=GROUP,
        )
        return int((await self.peer.call(request, version_max=3)).error_code)

    async def produce(self, producer: Producer, partition: int, sequence: int) -> tuple[int, int]:
        """The error, and the offset from the begin of the sequence."""
        records = batch(
            b"value",
            producer_id=self._id(producer),
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(TOPIC, (partition, records), transactional_id=self.transactional_id)
        end = time.monotonic() + DEADLINE_S
        while True:
            (found,) = outcomes(await self.peer.call(request, version_max=self._produce))
            if found.error_code != KafkaErrorCode.NOT_LEADER_OR_FOLLOWER:
                break
            assert time.monotonic() < end, "no leader"
        offset = found.base_offset - self.starts[partition] if found.base_offset >= 0 else -1
        return found.error_code, offset

    async def state(self) -> tuple[str, Producer, tuple[tuple[str, int], ...]]:
        """The state, producer and partitions of the transaction."""
        answer = await self.peer.call(DescribeTransactionsRequest(transactional_ids=[self.transactional_id]))
        (found,) = answer.transaction_states
        partitions = sorted((topic.topic, index) for topic in found.topics for index in topic.partitions)
        if found.error_code:
            return str(found.error_code), Producer(), ()
        return found.transaction_state, self._known(found.producer_id, found.producer_epoch), tuple(partitions)

    async def contents(self) -> list[Any]:
        """The batches of the sequence, by partition, and the last stable offset."""
        found: list[Any] = []
        for index in range(PARTITIONS):
            end = await self.end_offset(index)
            part, at = [], self.starts[index]
            while at < end:
                answer = await self.peer.call(fetch_request(TOPIC, (index, at), max_wait_ms=100), version_max=11)
                got = fetched(answer)[TOPIC, index]
                assert not got.error_code, got
                for each in batches(got.records):
                    part.append(self._described(each, self.starts[index]))
                    at = each.base_offset + each.last_offset_delta + 1
            found.append((part, end - self.starts[index]))
        return found

    def _described(self, found: Any, start: int) -> tuple[Any, ...]:
        producer = self._known(found.producer_id, found.producer_epoch)
        marker = control_type(found.records()[0]) if found.control else None
        return found.base_offset - start, producer, found.base_sequence, found.transactional, marker


class Sequence:
    """Random requests on two sides.

    Arguments:
        seed: of the requests.
        version: of transactions.
        ours, kafka: the sides.
    """

    def __init__(self, seed: int, version: int, ours: Side, kafka: Side) -> None:
        self._dice = random.Random(f"{seed} {version}")
        self._name = f"t-{version}-{seed}-{next(RUNS)}"  # not the id of an earlier run on the same Kafka
        self._version = version
        self._sides = ours, kafka
        self._known: list[Producer] = [Producer()]
        self._sequences: dict[tuple[Producer, int], int] = {}
        self._refused: set[tuple[int, int]] = set()  # numbers of producer ids, and partitions
        self._last_end: tuple[Producer, bool] | None = None
        self.log: list[str] = []

    async def run(self, steps: int) -> None:
        """Send requests; AssertionError names the first difference."""
        for side in self._sides:
            await side.begin(self._name)
        await self._step("init")
        for _ in range(steps):
            names = ["init", "renew", "add", "add_offsets", "produce", "end", "repeat"]
            weights = [1, 2, 4, 1, 8, 6, 2] if self._version == 1 else [1, 2, 1, 1, 8, 6, 3]
            await self._step(self._dice.choices(names, weights)[0])
        await self._step("init")  # it ends an open transaction
        self._compare("contents", [await side.contents() for side in self._sides])

    def _producer(self) -> Producer:
        """Mostly the current producer, else an earlier one, or one with a wrong epoch or id."""
        chance, current = self._dice.random(), self._known[-1]
        if chance < 0.8:
            return current
        if chance < 0.9:
            return self._dice.choice(self._known[-3:])
        if chance < 0.97:
            return current._replace(epoch=max(0, current.epoch + self._dice.choice([-1, 1])))
        return Producer(99, 0)

    async def _step(self, name: str) -> None:
        producer, partition = self._producer(), self._dice.randrange(PARTITIONS)
        commit = self._dice.random() < 0.6
        if name == "repeat":
            if self._last_end is None:
                return
            (producer, commit), name = self._last_end, "end"
        arguments: tuple[Any, ...] = (producer,)
        if name == "init":
            arguments = (None,)
        if name == "end":
            arguments = self._last_end = (producer, commit)
        if name == "add":
            arguments = (producer, partition)
        if name == "produce":
            sequence = self._sequences.get((producer, partition), 0)
            if sequence and (producer.number, partition) in self._refused:
                return  # Kafka keeps the entry of the refused attempt, and rejects batches of the open transaction
            arguments = (producer, partition, sequence)
        method = "init" if name == "renew" else name
        results = [await getattr(side, method)(*arguments) for side in self._sides]
        self._compare(f"{name}{arguments}", results)
        self._learn(name, arguments, results[1])
        self._compare("state", [await side.state() for side in self._sides])

    def _learn(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        if name in ("init", "renew", "end") and not result[0] and result[1].number >= 0:
            self._known.append(result[1])
        if name == "produce":
            where = arguments[0].number, arguments[1]
            if not result[0]:
                self._sequences[arguments[:2]] = arguments[2] + 1
                self._refused.discard(where)
            elif result[0] in UNKNOWN_PRODUCER:
                self._refused.add(where)

    def _compare(self, what: str, results: list[Any]) -> None:
        ours, kafka = results
        self.log.append(f"{what}: {kafka}")
        assert ours == kafka, "\n".join([*self.log[-12:], f"{what}: ours {ours}", f"{what}: Kafka {kafka}"])
