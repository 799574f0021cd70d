"""AddPartitionsToTxn, key 24, v0-5: adds partitions to transactions, or verifies that they are in them (KIP-890).

If a partition cannot be added, none is: the others get OPERATION_NOT_ATTEMPTED. Clients cannot add partitions of
internal topics: TOPIC_AUTHORIZATION_FAILED.

Version notes: v0-3 are those of clients, with one transaction; v0-1 have INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
v4-5 are those of brokers, with several transactions: only they are served on the listener between brokers.

Source: KafkaApis.handleAddPartitionsToTxnRequest.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalite.callbacks import Completion, FanIn
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafkalite.server.requests.call import TransactionCall
from kafkalite.server.requests.transactions.error_codes import code_of_version
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.topic_names import is_internal
from kafkalite.state.transactions.requests import AddPartitions, VerifyPartitions
from kafkalite.state.transactions.states import TransactionVersion

OF_BROKERS_SINCE = 4
NOT_ATTEMPTED = KafkaErrorCode.OPERATION_NOT_ATTEMPTED

Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Errors = Mapping[TopicPartition, int] | int  # by partition, or of all
Then = Callable[[Errors], None]


class Transaction(NamedTuple):
    """One transaction of a request of any version."""

    transactional_id: str
    producer_id: int
    epoch: int
    topics: Sequence[Any]
    verify_only: bool = False

    @property
    def size(self) -> int:
        """The number of partitions and topics."""
        return sum(1 + len(topic.partitions) for topic in self.topics)


def add_partitions_to_txn(call: TransactionCall, request: AddPartitionsToTxnRequest) -> None:
    """Have the coordinator add or verify the partitions of each transaction."""
    of_brokers = call.version >= OF_BROKERS_SINCE
    if call.refuse_of_client(of_brokers=of_brokers):
        return
    transactions = transactions_of(request, of_brokers=of_brokers)
    added = partial(answer, call, transactions)
    gathered = FanIn[Errors](len(transactions), call.guard(added))
    steps = (partial(gathered.put, at) for at in range(len(transactions)))
    size = sum(each.size for each in transactions)
    call.append_in_slices(submit_each(call, transactions, list(steps)), size, ended)


def transactions_of(request: AddPartitionsToTxnRequest, *, of_brokers: bool) -> list[Transaction]:
    """The transactions of a request."""
    if of_brokers:
        return [
            Transaction(each.transactional_id, each.producer_id, each.producer_epoch, each.topics, each.verify_only)
            for each in request.transactions
        ]
    only = Transaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        request.v3_and_below_topics,
    )
    return [only]


def submit_each(
    call: TransactionCall, transactions: Sequence[Transaction], puts: Sequence[Then]
) -> Generator[None, None, None]:
    """Check the partitions of each transaction, and pass it to the coordinator.

    Arguments:
        call: of the request.
        transactions: of the request.
        puts: receive the errors of each.
    """
    for transaction, put in zip(transactions, puts, strict=True):
        wanted, errors = yield from check_partitions(call, transaction)
        if errors:
            put({each: errors.get(each, NOT_ATTEMPTED) for each in wanted})
        elif transaction.verify_only:
            verify = VerifyPartitions(transaction.transactional_id, transaction.producer_id, transaction.epoch, wanted)
            call.context.transactions.verify_partitions(verify, Completion(put, put))
        else:
            version = TransactionVersion.TV2 if call.version >= OF_BROKERS_SINCE else TransactionVersion.TV1
            add = AddPartitions(
                transaction.transactional_id, transaction.producer_id, transaction.epoch, wanted, version
            )
            call.context.transactions.add_partitions(add, Completion(put, put))


def check_partitions(
    call: TransactionCall, transaction: Transaction
) -> Generator[None, None, tuple[frozenset[TopicPartition], dict[TopicPartition, int]]]:
    """Return the partitions of a transaction, and the errors of those that cannot be added."""
    wanted: set[TopicPartition] = set()
    errors: dict[TopicPartition, int] = {}
    for topic in transaction.topics:
        known = call.context.image.topic(topic.name, b"", by_id=False)
        hidden = call.version < OF_BROKERS_SINCE and (is_internal(topic.name) or not may_write(call, topic.name))
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            wanted.add(partition)
            if hidden:
                errors[partition] = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or known.partition(index) is None:
                errors[partition] = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield
    return frozenset(wanted), errors


def may_write(call: TransactionCall, topic: str) -> bool:
    """Return whether the client may write to a topic."""
    authorization = call.authorization
    return authorization is None or authorization.allows(AclOperation.WRITE, AclResourceType.TOPIC, topic)


def answer(call: TransactionCall, transactions: Sequence[Transaction], results: Sequence[Errors]) -> None:
    """Send the response, in slices if it is large; `results` are those of the transactions."""
    size = sum(each.size for each in transactions)
    call.answer_from(build_response(call, transactions, results), size)


def build_response(
    call: TransactionCall, transactions: Sequence[Transaction], results: Sequence[Errors]
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    if call.version < OF_BROKERS_SINCE:
        topic_class: Any = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        topics = yield from describe_topics(call, transactions[0], results[0], topic_class)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics, results_by_transaction=[])
    array = call.elements()
    for transaction, errors in zip(transactions, results, strict=True):
        topics = yield from describe_topics(call, transaction, errors, Result.AddPartitionsToTxnTopicResult)
        array.add(Result(transactional_id=transaction.transactional_id, topic_results=topics), 1 + transaction.size)
    return AddPartitionsToTxnResponse(results_by_transaction=array.finish(), results_by_topic_v3_and_below=[])


def describe_topics(
    call: TransactionCall, transaction: Transaction, errors: Errors, topic_class: Any
) -> Generator[None, None, Any]:
    """Return the results by topic of a transaction; `topic_class` is their struct in this version."""
    topics = call.elements()
    for topic in transaction.topics:
        partitions = call.elements()
        for index in topic.partitions:
            error = errors if isinstance(errors, int) else errors[TopicPartition(topic.name, index)]
            code = code_of_version(call, error)
            partitions.add(
                topic_class.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
            yield
        topics.add(topic_class(name=topic.name, results_by_partition=partitions.finish()), 1 + len(topic.partitions))
    return topics.finish()


def ended(_steps: None) -> None:
    """Do nothing: the response follows when the coordinator has answered."""
