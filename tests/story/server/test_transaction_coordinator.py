"""The requests of a transactional producer to its coordinator, on a whole broker."""

from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkalite.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.list_transactions import ListTransactionsRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from tests.kit.server import Client, batch

TRANSACTION = 1
TV1, TV2 = 4, 5  # versions of EndTxn
NEVER = -1

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


class Producer:
    """A transactional producer that sends single requests."""

    def __init__(self, client: Client, transactional_id: str = "me") -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.id, self.epoch = -1, -1

    async def init(self, version: int | None = None, *, timeout_ms: int = 60_000, resume: bool = False) -> Error:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.id if resume else -1,
            producer_epoch=self.epoch if resume else -1,
        )
        answer = await self.client.call(request, version)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    async def add(self, *partitions: tuple[str, int], version: int = 3) -> list[Error]:
        """The error of each partition, in their order."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(name=name, partitions=[index]) for name, index in partitions],
        )
        answer = await self.client.call(request, version)
        found = answer.results_by_topic_v3_and_below
        return [Error(each.partition_error_code) for topic in found for each in topic.results_by_partition]

    def added(self, *partitions: tuple[str, int], verify_only: bool = False) -> Any:
        """A transaction of a request between brokers."""
        topics = [Transaction.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
        return Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics,
        )

    async def add_offsets(self, group: str, version: int | None = None) -> Error:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return Error((await self.client.call(request, version)).error_code)

    async def end(self, *, commit: bool = True, version: int = TV2) -> Error:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.client.call(request, version)
        if not answer.error_code and version >= TV2:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    async def state(self) -> Any:
        (state,) = await described(self.client, self.transactional_id)
        return state


async def described(client: Client, *ids: str) -> list[Any]:
    answer = await client.call(DescribeTransactionsRequest(transactional_ids=list(ids)))
    return list(answer.transaction_states)


async def add_of_brokers(client: Client, *transactions: Any, version: int = 5) -> list[tuple[str, list[Error]]]:
    answer = await client.call(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    return [
        (
            each.transactional_id,
            [
                Error(partition.partition_error_code)
                for topic in each.topic_results
                for partition in topic.results_by_partition
            ],
        )
        for each in answer.results_by_transaction
    ]


@pytest.fixture
async def producer(client: Client) -> Producer:
    await client.create("t", partitions=3)
    for index in range(3):  # their logs are open: markers are written in the loop iteration of the decision
        await client.produce("t", batch(b"plain"), partition=index)
    producer = Producer(client)
    assert await producer.init() == Error.NONE
    return producer


@pytest.mark.parametrize("version", range(1, 7))
async def test_coordinator_of_a_transactional_id_is_found_and_its_topic_created(client: Client, version: int) -> None:
    request = FindCoordinatorRequest(key="me", coordinator_keys=["me", "you"], key_type=TRANSACTION)
    answer = await client.call(request, version)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(each.error_code, each.node_id) for each in found] == [(0, client.broker.broker_id)] * len(found)
    topic = client.broker.image.topics["__transaction_state"]
    assert len(topic.partitions) == client.broker.config.values["transaction.state.log.num.partitions"]


@pytest.mark.parametrize("version", range(6))
async def test_each_session_has_the_next_epoch(client: Client, version: int) -> None:
    producer = Producer(client)
    assert await producer.init(version) == Error.NONE
    first = producer.id
    assert producer.epoch == 0 and first >= 0
    assert await producer.init(version) == Error.NONE
    assert (producer.id, producer.epoch) == (first, 1)
    assert await Producer(client, "").init(version) == Error.INVALID_REQUEST
    assert await Producer(client).init(version, timeout_ms=0) == Error.INVALID_TRANSACTION_TIMEOUT
    assert await Producer(client).init(version, timeout_ms=2**31 - 1) == Error.INVALID_TRANSACTION_TIMEOUT


async def test_the_longest_id(producer: Producer) -> None:
    """A string of Kafka's protocol has at most 32,767 bytes, and so has a key of `__transaction_state`."""
    long = Producer(producer.client, "x" * (2**15 - 1))
    for epoch in (0, 1):
        assert (await long.init(), long.epoch) == (Error.NONE, epoch)
    assert await long.add(("t", 0)) == [Error.NONE]
    assert await long.end() == Error.NONE
    assert (await long.state()).transaction_state == "CompleteCommit"


@pytest.mark.parametrize(("version", "error"), [(3, Error.INVALID_PRODUCER_EPOCH), (4, Error.PRODUCER_FENCED)])
async def test_fenced_session_has_the_error_of_its_version(producer: Producer, version: int, error: Error) -> None:
    producer.epoch = 7
    assert await producer.init(version, resume=True) == error
    half = InitProducerIdRequest(transactional_id="me", transaction_timeout_ms=1, producer_id=5)
    assert (await producer.client.call(half, version)).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_transaction_is_complete_after_its_end(producer: Producer, commit: bool, version: int) -> None:
    epoch = producer.epoch
    assert await producer.add(("t", 0), ("t", 2)) == [Error.NONE] * 2
    state = await producer.state()
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", producer.id, epoch)
    assert [(each.topic, each.partitions) for each in state.topics] == [("t", [0, 2])]
    assert state.transaction_timeout_ms == 60_000 and state.transaction_start_time_ms > 0
    assert await producer.end(commit=commit, version=version) == Error.NONE
    state = await producer.state()
    assert (state.transaction_state, state.topics) == ("CompleteCommit" if commit else "CompleteAbort", [])
    assert producer.epoch == epoch + (version >= TV2)
    assert await producer.add(("t", 1)) == [Error.NONE]


@pytest.mark.parametrize("version", range(4))
async def test_no_partition_is_added_if_one_is_unknown(producer: Producer, version: int) -> None:
    wanted = ("t", 0), ("t", 3), ("u", 0), ("__consumer_offsets", 0)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    errors = [Error.OPERATION_NOT_ATTEMPTED, unknown, unknown, Error.TOPIC_AUTHORIZATION_FAILED]
    assert await producer.add(*wanted, version=version) == errors
    assert (await producer.state()).transaction_state == "Empty"
    producer.epoch += 1
    fenced = Error.INVALID_PRODUCER_EPOCH if version < 2 else Error.PRODUCER_FENCED
    assert await producer.add(("t", 0), ("t", 1), version=version) == [fenced] * 2


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_add_and_verify_partitions_of_several_transactions(producer: Producer, version: int) -> None:
    other = Producer(producer.client, "other")
    assert await other.init() == Error.NONE
    added = [producer.added(("t", 0)), other.added(("t", 1), ("t", 9))]
    assert await add_of_brokers(producer.client, *added, version=version) == [
        ("me", [Error.NONE]),
        ("other", [Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION]),
    ]
    verified = [producer.added(("t", 0), ("t", 1), verify_only=True), Producer(producer.client, "no").added(("t", 0))]
    assert await add_of_brokers(producer.client, *verified, version=version) == [
        ("me", [Error.NONE, Error.TRANSACTION_ABORTABLE]),
        ("no", [Error.INVALID_PRODUCER_ID_MAPPING]),
    ]
    assert await producer.end() == Error.NONE


@pytest.mark.parametrize("version", range(5))
async def test_offsets_of_a_group_are_added(producer: Producer, version: int) -> None:
    await producer.client.call(OffsetCommitRequest(group_id="g"))  # creates the topic
    assert await producer.add_offsets("g", version) == Error.NONE
    (topic,) = (await producer.state()).topics
    assert topic.topic == "__consumer_offsets"
    assert topic.partitions == [producer.client.broker.groups.partition_for("g")]
    producer.epoch += 1
    fenced = Error.INVALID_PRODUCER_EPOCH if version < 2 else Error.PRODUCER_FENCED
    assert await producer.add_offsets("g", version) == fenced


@pytest.mark.parametrize(("version", "error"), [(1, Error.INVALID_PRODUCER_EPOCH), (4, Error.PRODUCER_FENCED)])
async def test_fenced_end_has_the_error_of_its_version(producer: Producer, version: int, error: Error) -> None:
    assert await producer.add(("t", 0)) == [Error.NONE]
    assert await Producer(producer.client).init() == Error.CONCURRENT_TRANSACTIONS, "aborts the open transaction"
    assert await producer.end(version=version) == error
    assert (await producer.state()).transaction_state == "CompleteAbort"
    later = Producer(producer.client)
    assert await later.init() == Error.NONE and later.epoch == producer.epoch + 2


async def test_transactions_are_listed_by_filters(producer: Producer) -> None:
    client = producer.client
    for name in ("open-1", "open-2"):
        other = Producer(client, name)
        assert await other.init() == Error.NONE
        assert await other.add(("t", 0)) == [Error.NONE]

    async def listed(version: int = 2, **filters: Any) -> list[tuple[str, str]]:
        request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
        answer = await client.call(request, version)
        assert answer.error_code == 0
        return sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)

    everything = [("me", "Empty"), ("open-1", "Ongoing"), ("open-2", "Ongoing")]
    for version in range(3):
        assert await listed(version) == everything
        assert await listed(version, state_filters=["Ongoing"]) == everything[1:]
        assert await listed(version, producer_id_filters=[producer.id, 10**9]) == everything[:1]
    assert await listed(duration_filter=3_600_000) == everything[:1], "as in Kafka, without a start it is old"
    assert await listed(transactional_id_pattern=".*-1") == everything[1:2]
    assert await listed(transactional_id_pattern="open") == [], "the whole id must match"
    unknown = ListTransactionsRequest(state_filters=["Open", "Dead"], producer_id_filters=[])
    answer = await client.call(unknown)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Open"], [])
    bad = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    assert (await client.call(bad)).error_code == Error.INVALID_REGULAR_EXPRESSION


async def test_unknown_and_empty_ids_are_described_with_errors(producer: Producer) -> None:
    states = await described(producer.client, "unknown", "", "me")
    errors = [Error.TRANSACTIONAL_ID_NOT_FOUND, Error.INVALID_REQUEST, Error.NONE]
    assert [(each.transactional_id, each.error_code) for each in states] == [
        ("unknown", errors[0]),
        ("", errors[1]),
        ("me", errors[2]),
    ]
