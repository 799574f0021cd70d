"""TxnOffsetCommit on a whole broker; a script answers for the coordinator of the transactions."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.kit.members import beat_join, codes, commit, fetch, join, leave, offsets_of, register, sync
from tests.kit.server import Client, connected, running
from tests.story.server.test_group_offsets import delete
from tests.story.server.test_rewind import outcome, rewind
from tests.story.server.test_write_txn_markers import marker, write

UNSTABLE = Error.UNSTABLE_OFFSET_COMMIT
Then = Callable[[int], None]


class ScriptedChecks:
    """Answers for the coordinator: 0, an error, or later.

    Attributes:
        asked: transactional id, producer id, epoch, whether the partition is added.
        error: of the next answers.
        held: answers wait here while it is a list.
    """

    def __init__(self) -> None:
        self.verifies = True
        self.asked: list[tuple[str, int, int, bool]] = []
        self.error = 0
        self.held: list[Then] | None = None

    def check(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        on_result: Then,
    ) -> None:
        assert partition == (OFFSETS.name, 0)
        self.asked.append((transactional_id, producer_id, epoch, add))
        if self.held is None:
            on_result(self.error)
        else:
            self.held.append(on_result)

    def close(self) -> None:
        """Nothing waits."""


@pytest.fixture
async def orders(client: Client) -> Client:
    await client.create("orders", partitions=3)
    await client.call(FindCoordinatorRequest(key="g", key_type=0), 3)  # creates __consumer_offsets
    return client


@pytest.fixture
def checks(client: Client) -> ScriptedChecks:
    return script(client)


def script(client: Client) -> ScriptedChecks:
    """Replace the coordinator of the transactions."""
    checks = ScriptedChecks()
    client.broker.replicas.make_checks = lambda: checks
    return checks


def offsets(
    offsets: dict[int, int], topic: str = "orders", producer_id: int = 7, epoch: int = 0, **more: Any
) -> TxnOffsetCommitRequest:
    """A commit of transactional id "x"."""
    of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = of_topic.TxnOffsetCommitRequestPartition
    parts = [partition(partition_index=at, committed_offset=to, committed_metadata="m") for at, to in offsets.items()]
    fields = {"transactional_id": "x", "group_id": "g", **more}
    topics = [of_topic(name=topic, partitions=parts)]
    return TxnOffsetCommitRequest(producer_id=producer_id, producer_epoch=epoch, topics=topics, **fields)


async def stable(client: Client, group: str = "g", partition: int = 0) -> tuple[int, int]:
    """Offset and error of a fetch that requires stable offsets."""
    request = fetch(group, "orders", partition)
    request.require_stable = True
    (found,) = (await client.call(request, 9)).groups
    (part,) = found.topics[0].partitions
    return part.committed_offset, part.error_code


async def end(client: Client, *, commit: bool, producer_id: int = 7, epoch: int = 0) -> None:
    ended = marker(producer_id, (OFFSETS.name, 0), commit=commit, epoch=epoch)
    assert await write(client, ended) == {(producer_id, OFFSETS.name, 0): 0}


@pytest.mark.parametrize("version", range(6))
async def test_offsets_are_pending_until_the_marker(orders: Client, checks: ScriptedChecks, version: int) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 1}), 9)) == [0]
    answer = await orders.call(offsets({0: 5, 2: 6, 3: 1, -1: 1}), version)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [0, 0, unknown, unknown]
    assert checks.asked == [("x", 7, 0, version == 5)]
    assert await stable(orders) == (-1, UNSTABLE)
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 1}
    await end(orders, commit=True)
    assert await stable(orders) == (5, 0)
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 5, ("orders", 2): 6}


async def test_aborted_offsets_are_dropped(orders: Client, checks: ScriptedChecks) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 1}), 9)) == [0]
    assert codes(await orders.call(offsets({0: 5, 1: 5}))) == [0, 0]
    await end(orders, commit=False)
    assert await stable(orders) == (1, 0)
    assert await stable(orders, partition=1) == (-1, 0)
    await orders.call(offsets({2: 7}))
    await end(orders, commit=True)
    assert await stable(orders) == (1, 0), "the next transaction does not commit what the aborted one had"
    assert await stable(orders, partition=1) == (-1, 0)


async def test_open_transaction_costs_no_further_check(orders: Client, checks: ScriptedChecks) -> None:
    for offset in range(3):
        assert codes(await orders.call(offsets({0: offset}))) == [0]
    assert len(checks.asked) == 1
    await end(orders, commit=True)
    assert codes(await orders.call(offsets({0: 9}))) == [0]
    assert len(checks.asked) == 2, "the marker has ended it"


async def test_zombie_is_fenced_by_the_coordinator(orders: Client, checks: ScriptedChecks) -> None:
    checks.error = Error.PRODUCER_FENCED
    assert codes(await orders.call(offsets({0: 5}))) == [Error.INVALID_PRODUCER_EPOCH]
    assert await stable(orders) == (-1, 0)


async def test_zombie_with_an_older_epoch_is_fenced_by_the_log(orders: Client, checks: ScriptedChecks) -> None:
    """Also while the transaction of its successor is open, and without harm to other requests of the group."""
    assert codes(await orders.call(offsets({0: 5}, epoch=1))) == [0]
    assert codes(await orders.call(offsets({0: 9}, epoch=0))) == [Error.INVALID_PRODUCER_EPOCH]
    await end(orders, commit=True, epoch=1)
    assert await stable(orders) == (5, 0)
    assert codes(await orders.call(offsets({0: 9}, epoch=0))) == [Error.INVALID_PRODUCER_EPOCH]
    assert await stable(orders) == (5, 0)


@pytest.mark.parametrize("version", [3, 5])
async def test_answer_about_an_ended_transaction_opens_no_other(
    orders: Client, checks: ScriptedChecks, version: int
) -> None:
    """KIP-890: the marker is written between the verification and the append. TV2 asks again."""
    checks.held = []
    async with connected(orders.broker) as late:
        waiting = asyncio.ensure_future(late.call(offsets({0: 5}), version))
        while not checks.held:
            await orders.call(fetch("g"), 9)
        await end(orders, commit=False)
        checks.held[0](0)
        if version == 5:
            checks.held[1](Error.INVALID_TXN_STATE)
        assert codes(await waiting) == [Error.INVALID_TXN_STATE]
    assert await stable(orders) == (-1, 0)


@pytest.mark.parametrize(
    ("version", "error", "expected"),
    [
        (0, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE),
        (1, Error.NETWORK_EXCEPTION, Error.COORDINATOR_NOT_AVAILABLE),
        (2, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_LOAD_IN_PROGRESS),
        (5, Error.NETWORK_EXCEPTION, Error.COORDINATOR_LOAD_IN_PROGRESS),
        (3, Error.TRANSACTION_ABORTABLE, Error.INVALID_TXN_STATE),
        (4, Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (5, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_error_codes_of_versions(
    orders: Client, checks: ScriptedChecks, version: int, error: Error, expected: Error
) -> None:
    checks.error = error
    assert codes(await orders.call(offsets({0: 5, 9: 1}), version)) == [expected, Error.UNKNOWN_TOPIC_OR_PARTITION]


async def test_verification_may_be_disabled(orders: Client, checks: ScriptedChecks) -> None:
    """`transaction.partition.verification.enable`: of older versions; v5 adds the partition all the same."""
    checks.verifies = False
    assert codes(await orders.call(offsets({0: 5}), 4)) == [0]
    assert checks.asked == [] and await stable(orders) == (-1, UNSTABLE)
    assert codes(await orders.call(offsets({0: 5}, producer_id=8), 5)) == [0]
    assert checks.asked == [("x", 8, 0, True)]


async def test_requests_that_commit_nothing(orders: Client, checks: ScriptedChecks) -> None:
    assert codes(await orders.call(offsets({0: 5}, group_id=""))) == [Error.INVALID_GROUP_ID]
    assert codes(await orders.call(offsets({0: 5}, topic="none"))) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(await orders.call(offsets({}))) == []
    assert checks.asked == []


async def test_group_without_its_topic_is_not_coordinated_here(client: Client, checks: ScriptedChecks) -> None:
    await client.create("orders")
    assert codes(await client.call(offsets({0: 5}))) == [Error.NOT_COORDINATOR]
    assert OFFSETS.name not in client.broker.image.topics


async def test_members_of_classic_groups(orders: Client, checks: ScriptedChecks) -> None:
    unknown = offsets({0: 5}, member_id="m", generation_id=1)
    assert codes(await orders.call(unknown)) == [Error.ILLEGAL_GENERATION], "there is no such group"
    member = (await orders.call(join("g", topics=("orders",)), 3)).member_id
    assert (await orders.call(sync("g", member, 1, {member: b""}))).error_code == 0
    cases = {
        ("zombie", 1, None): Error.UNKNOWN_MEMBER_ID,
        (member, 0, None): Error.ILLEGAL_GENERATION,
        (member, -1, None): Error.ILLEGAL_GENERATION,
        (member, 1, "i"): Error.UNKNOWN_MEMBER_ID,
        (member, 1, None): 0,
        ("", -1, None): 0,  # a client without KIP-447
    }
    for (member_id, generation, instance), error in cases.items():
        fields = {"member_id": member_id, "generation_id": generation, "group_instance_id": instance}
        assert codes(await orders.call(offsets({0: 5}, **fields))) == [error], fields


async def test_members_of_consumer_groups(orders: Client, checks: ScriptedChecks) -> None:
    beat = await orders.call(beat_join("g", "m", "orders"))
    while len(beat.assignment.topic_partitions if beat.assignment else []) == 0:
        beat = await orders.call(beat_join("g", "m", "orders"))
    epoch = beat.member_epoch
    cases = {
        ("zombie", epoch): Error.UNKNOWN_MEMBER_ID,
        ("m", epoch + 1): Error.ILLEGAL_GENERATION,  # clients of TxnOffsetCommit do not know STALE_MEMBER_EPOCH
        ("m", epoch): 0,
        ("", -1): Error.UNKNOWN_MEMBER_ID,
    }
    for (member_id, generation), error in cases.items():
        answer = await orders.call(offsets({0: 5}, member_id=member_id, generation_id=generation))
        assert codes(answer) == [error], (member_id, generation)


async def test_members_of_registered_groups(orders: Client, checks: ScriptedChecks) -> None:
    generation = (await orders.call(register("g", "c", "orders"))).generation_id
    cases = {
        ("zombie", generation): Error.UNKNOWN_MEMBER_ID,
        ("c", generation - 1): Error.ILLEGAL_GENERATION,
        ("c", generation + 1): Error.ILLEGAL_GENERATION,
        ("c", generation): 0,
        ("", -1): 0,  # a client without KIP-447
    }
    for (member_id, wanted), error in cases.items():
        answer = await orders.call(offsets({0: 5}, member_id=member_id, generation_id=wanted))
        assert codes(answer) == [error], (member_id, wanted)


async def test_deleted_group_has_no_pending_offsets(orders: Client, checks: ScriptedChecks) -> None:
    """DeleteGroups deletes them: the transaction commits nothing for the group."""
    assert codes(await orders.call(offsets({0: 5}))) == [0]
    answer = await orders.call(DeleteGroupsRequest(groups_names=["g"]))
    assert [each.error_code for each in answer.results] == [0]
    assert await stable(orders) == (-1, 0)
    await end(orders, commit=True)
    assert await stable(orders) == (-1, 0)


async def test_deleted_offset_is_not_committed_later(orders: Client, checks: ScriptedChecks) -> None:
    """OffsetDelete deletes the pending offset of its partition, and no other."""
    assert codes(await orders.call(offsets({0: 5, 1: 6}))) == [0, 0]
    answer = await orders.call(delete("g", ("orders", 0)))
    assert (answer.error_code, codes(answer)) == (0, [0])
    assert await stable(orders) == (-1, 0)
    await end(orders, commit=True)
    assert (await stable(orders), await stable(orders, partition=1)) == ((-1, 0), (6, 0))


async def test_rewind_replaces_a_pending_offset(orders: Client, checks: ScriptedChecks) -> None:
    """RewindConsumer is the later commit; the partition is unstable until the transaction ends."""
    assert codes(await orders.call(commit("g", "orders", {0: 1}), 9)) == [0]
    assert codes(await orders.call(offsets({0: 5}))) == [0]
    assert outcome(await orders.call(rewind("g", ("orders", 0, 0, -1)))) == [(0, 0)]
    assert await stable(orders) == (-1, UNSTABLE)
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 0}
    await end(orders, commit=True)
    assert await stable(orders) == (0, 0)


async def test_members_may_leave_while_offsets_are_pending(orders: Client, checks: ScriptedChecks) -> None:
    member = (await orders.call(join("g", topics=("orders",)), 3)).member_id
    assert (await orders.call(sync("g", member, 1, {member: b""}))).error_code == 0
    assert codes(await orders.call(offsets({0: 5}, member_id=member, generation_id=1))) == [0]
    assert (await orders.call(leave("g", member))).error_code == 0
    await end(orders, commit=True)
    assert await stable(orders) == (5, 0)


async def test_commit_of_many_partitions(client: Client, checks: ScriptedChecks) -> None:
    await client.create("orders", partitions=700)
    await client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
    answer = await client.call(offsets({index: index for index in range(700)}))
    assert codes(answer) == [0] * 700 and len(checks.asked) == 1
    await end(client, commit=True)
    assert await stable(client, partition=699) == (699, 0)


@pytest.mark.parametrize("committed", [True, False])
async def test_pending_offsets_survive_a_restart(tmp_path_factory: pytest.TempPathFactory, committed: bool) -> None:
    data = str(tmp_path_factory.mktemp("data"))
    async with running(data) as client:
        script(client)
        await client.create("orders", partitions=3)
        await client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
        assert codes(await client.call(offsets({0: 5}))) == [0]
    async with running(data) as client:
        while (found := await stable(client))[1] != UNSTABLE:
            assert found[1] in (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
        await end(client, commit=committed)
        assert await stable(client) == ((5, 0) if committed else (-1, 0))


async def begin(client: Client) -> tuple[int, int]:
    """Producer id and epoch of a new session of transactional id "x"."""
    while True:
        answer = await client.call(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
        assert answer.error_code in (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS)


async def end_txn(client: Client, producer: tuple[int, int], *, commit: bool, version: int) -> tuple[int, int]:
    """End the transaction; producer id and epoch from then on."""
    request = EndTxnRequest(transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], committed=commit)
    answer = await client.call(request, version)
    assert answer.error_code == 0
    return (answer.producer_id, answer.producer_epoch) if version >= 5 else producer


async def stabilized(client: Client) -> tuple[int, int]:
    """The offset once no transaction is open: the coordinator answers before the markers are written."""
    while (found := await stable(client))[1] == UNSTABLE:
        pass
    return found


@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_of_whole_transactions(orders: Client, version: int) -> None:
    """With the coordinator of this broker: TV1 adds the group by a request of its own."""
    await orders.call(FindCoordinatorRequest(key="x", key_type=1), 3)
    producer = await begin(orders)
    expected = -1
    for offset, commits in ((5, True), (6, False), (7, True), (8, False)):
        if version < 5:
            fields = {"producer_id": producer[0], "producer_epoch": producer[1], "group_id": "g"}
            added = await orders.call(AddOffsetsToTxnRequest(transactional_id="x", **fields), 3)
            while added.error_code == Error.CONCURRENT_TRANSACTIONS:
                added = await orders.call(AddOffsetsToTxnRequest(transactional_id="x", **fields), 3)
            assert added.error_code == 0
        answer = await orders.call(offsets({0: offset}, producer_id=producer[0], epoch=producer[1]), version)
        assert codes(answer) == [0] and await stable(orders) == (-1, UNSTABLE)
        producer = await end_txn(orders, producer, commit=commits, version=version)
        expected = offset if commits else expected
        assert await stabilized(orders) == (expected, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_zombie_commits_no_offsets(orders: Client, version: int) -> None:
    """A producer whose transactional id has a newer session, and one that has not added the group (TV1)."""
    await orders.call(FindCoordinatorRequest(key="x", key_type=1), 3)
    zombie = await begin(orders)
    producer = await begin(orders)
    answer = await orders.call(offsets({0: 9}, producer_id=zombie[0], epoch=zombie[1]), version)
    assert codes(answer) == [Error.INVALID_PRODUCER_EPOCH]
    stranger = await orders.call(offsets({0: 9}, producer_id=zombie[0] + 1000, epoch=0), version)
    assert codes(stranger) == [Error.INVALID_PRODUCER_ID_MAPPING]
    answer = await orders.call(offsets({0: 5}, producer_id=producer[0], epoch=producer[1]), version)
    not_added = {3: Error.INVALID_TXN_STATE, 4: Error.TRANSACTION_ABORTABLE, 5: 0}
    assert codes(answer) == [not_added[version]]
    if version == 5:
        await end_txn(orders, producer, commit=True, version=5)
    assert await stabilized(orders) == ((5, 0) if version == 5 else (-1, 0))
    late = await orders.call(offsets({0: 9}, producer_id=zombie[0], epoch=zombie[1]), version)
    assert codes(late) == [Error.INVALID_PRODUCER_EPOCH]
