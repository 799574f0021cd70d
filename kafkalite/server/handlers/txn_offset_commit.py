"""TxnOffsetCommit, key 28, v0-5: commits offsets of a group in a transaction, pending until its marker (KIP-98).

Version notes: v2 COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296); v3 member and generation, or member epoch (KIP-447); v4
TRANSACTION_ABORTABLE; v5 adds the partition of `__consumer_offsets` to the transaction (KIP-890), older versions verify
that AddOffsetsToTxn has added it.

The coordinator of the transaction is asked before the first commit of a transaction in a group shard; it knows the
epoch of the producer, so a zombie cannot commit. A marker that is written before its answer makes the answer invalid
(INVALID_TXN_STATE). While the appends of the shard wait for a job of its partition, a marker may be among them:
COORDINATOR_LOAD_IN_PROGRESS, which clients retry. Partitions that do not exist have UNKNOWN_TOPIC_OR_PARTITION.
Sources: KafkaApis.handleTxnOffsetCommitRequest, GroupCoordinatorService.commitTransactionalOffsets.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kafkalite.callbacks import Completion, FanIn
from kafkalite.cluster.metadata.image import UNASSIGNED_ID
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.verification import end_attempt
from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.coordinators.runtime.partition_writer import TransactionOfRecords
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkalite.server.requests.call import OBJECTS_MAX, GroupCall
from kafkalite.server.requests.group_responses import ended
from kafkalite.server.requests.transactions.error_codes import code_of_version
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit

if TYPE_CHECKING:
    from kafkalite.storage.log.log import Log

ABORTABLE_SINCE = 4
ADDS_SINCE = 5
NO_SEQUENCE = -1
COMMITS_AT_ONCE = 100  # of a request with more than OBJECTS_MAX partitions

# GroupCoordinatorService.commitTransactionalOffsets, AddPartitionsToTxnManager.AddPartitionsToTxnHandler
ALWAYS: dict[int, int] = {
    KafkaErrorCode.GROUP_ID_NOT_FOUND: KafkaErrorCode.ILLEGAL_GENERATION,
    KafkaErrorCode.STALE_MEMBER_EPOCH: KafkaErrorCode.ILLEGAL_GENERATION,
    KafkaErrorCode.PRODUCER_FENCED: KafkaErrorCode.INVALID_PRODUCER_EPOCH,
    KafkaErrorCode.NETWORK_EXCEPTION: KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
Response = Topic.TxnOffsetCommitResponsePartition
Refused = dict[tuple[int, int], int]  # errors by the indexes of topic and partition in the request


def txn_offset_commit(call: GroupCall, request: TxnOffsetCommitRequest) -> None:
    """Commit the existing partitions; the response has every partition of the request in its order."""
    pending = TransactionalCommit(call, request)
    if not request.group_id:
        pending.refuse(KafkaErrorCode.INVALID_GROUP_ID)
    elif not pending.commits:
        pending.refuse(KafkaErrorCode.NONE)
    else:
        pending.begin()


class TransactionalCommit:
    """A request until its response.

    Arguments:
        call: the request.
        request: its content.

    Attributes:
        commits: of the partitions that exist.
    """

    def __init__(self, call: GroupCall, request: TxnOffsetCommitRequest) -> None:
        self._call = call
        self._request = request
        self._refused: Refused = {}
        self.commits: list[PartitionCommit] = []
        for at, topic in enumerate(request.topics):
            found = call.context.image.topics.get(topic.name)
            count, topic_id = (0, UNASSIGNED_ID) if found is None else (len(found.partitions), found.topic_id)
            for position, part in enumerate(topic.partitions):
                index, offset = part.partition_index, part.committed_offset
                if 0 <= index < count:
                    fields = topic.name, index, offset, part.committed_leader_epoch, part.committed_metadata, topic_id
                    self.commits.append(PartitionCommit(*fields))
                else:
                    self._refused[at, position] = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def refuse(self, error: int) -> None:
        """Answer with this error for every partition that exists."""
        self._call.answer(self._response(iter([error] * len(self.commits))))

    # the transaction

    def begin(self) -> None:
        """Find the log of the group shard, which has the open transactions."""
        context = self._call.context
        index = context.groups.partition_for(self._request.group_id)
        found = context.replicas.partition(OFFSETS.name, UNASSIGNED_ID, index, by_id=False)
        if not isinstance(found, Partition) or found.error:
            self.refuse(KafkaErrorCode.NOT_COORDINATOR)
        elif found.log is None:
            found.open(self._call.at_others(partial(self._opened, found)))
        else:
            self._verify(index, found.log)

    def _opened(self, partition: Partition, error: int) -> None:
        """The first append to a partition creates its files, which the transaction needs before."""
        if error or partition.log is None:
            self.refuse(KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self._verify(partition.index, partition.log)
        self._call.context.replicas.write_pending()

    def _verify(self, index: int, log: "Log") -> None:
        """Have the coordinator verify or add the partition, unless the log has the open transaction."""
        request, adds = self._request, self._call.version >= ADDS_SINCE
        producer_id, epoch = request.producer_id, request.producer_epoch
        checks = self._call.context.replicas.transaction_checks
        error = log.transaction_error(producer_id, epoch)
        if error == KafkaErrorCode.INVALID_PRODUCER_EPOCH:
            self.refuse(error)
            return
        if not error:
            self._commit(TransactionOfRecords(producer_id, epoch))
            return
        verification = log.begin_verification(producer_id, epoch, NO_SEQUENCE, adds)
        transaction = TransactionOfRecords(producer_id, epoch, verification)
        if adds or checks.verifies:
            verified = self._call.at_others(partial(self._verified, log, transaction))
            partition = TopicPartition(OFFSETS.name, index)
            checks.check(request.transactional_id, producer_id, epoch, partition, add=adds, on_result=verified)
        else:
            self._commit(transaction)

    def _verified(self, log: "Log", transaction: TransactionOfRecords, error: int) -> None:
        if error:
            end_attempt(log, transaction.producer_id, transaction.verification, error)
            self.refuse(error)
        elif self._call.version >= ADDS_SINCE and log.transaction_error(*transaction):
            self.begin()  # a marker of the previous one came meanwhile
        else:
            self._commit(transaction)

    # the commit

    def _commit(self, transaction: TransactionOfRecords) -> None:
        self._call.append_in_slices(self._committing(transaction), len(self.commits), ended)

    def _committing(self, transaction: TransactionOfRecords) -> Generator[None, None, None]:
        """Commit in parts that fit into one loop iteration, and answer when all of them are committed."""
        size = OBJECTS_MAX if len(self.commits) <= OBJECTS_MAX else COMMITS_AT_ONCE
        parts = [self.commits[at : at + size] for at in range(0, len(self.commits), size)]

        def committed(results: list[CommitResult]) -> None:
            outcomes = (errors_of(part, result) for part, result in zip(parts, results, strict=True))
            self._call.answer(self._response(chain.from_iterable(outcomes)))

        gathered: FanIn[CommitResult] = FanIn(len(parts), self._call.guard(committed))
        for at, part in enumerate(parts):
            self._submit(part, transaction, partial(gathered.put, at))
            if len(parts) > 1:
                self._call.context.replicas.write_pending()
            yield

    def _submit(
        self, part: list[PartitionCommit], transaction: TransactionOfRecords, put: Callable[[CommitResult], None]
    ) -> None:
        request = self._request
        wanted = Commit(
            group=request.group_id,
            partitions=part,
            member_id=request.member_id,
            generation=request.generation_id,
            group_instance_id=request.group_instance_id,
            producer_id=request.producer_id,
        )
        completion = Completion(put, lambda error: put(CommitResult(error)))
        groups = self._call.context.groups
        groups.commit_in_transaction(wanted.group, partial(commit, wanted), transaction, completion)

    def _response(self, outcomes: Iterator[int]) -> TxnOffsetCommitResponse:
        """The response; `outcomes` has the errors of the existing partitions."""
        topics = []
        for at, topic in enumerate(self._request.topics):
            partitions = [
                Response(
                    partition_index=part.partition_index,
                    error_code=self._refused.get((at, position)) or error_of(self._call, next(outcomes)),
                )
                for position, part in enumerate(topic.partitions)
            ]
            topics.append(Topic(name=topic.name, partitions=partitions))
        return TxnOffsetCommitResponse(topics=topics)


def commit(wanted: Commit, machine: GroupMachine, token: Token, now: Now) -> Effects:
    """Commit a part of a request; a command.

    Arguments:
        wanted: the part.
        machine: has the group.
        token: of the answer.
        now: the time of the command.
    """
    return machine.offsets.commit(wanted, token, now)


def errors_of(commits: list[PartitionCommit], result: CommitResult) -> Iterator[int]:
    """Return the error of each partition of a part.

    Arguments:
        commits: the part.
        result: of its command.
    """
    return iter([result.error] * len(commits) if result.error else result.errors)


def error_of(call: GroupCall, error: int) -> int:
    """Return the error code that clients of this version know.

    Arguments:
        call: the request.
        error: of a partition, 0 = none.
    """
    if error == KafkaErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_SINCE:
        return KafkaErrorCode.INVALID_TXN_STATE
    return code_of_version(call, ALWAYS.get(error, error))
