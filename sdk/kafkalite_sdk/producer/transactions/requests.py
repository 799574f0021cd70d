"""The requests of a transaction, and the error codes of their responses.

Pure. The versions are those of the transaction protocol: without KIP-890 AddPartitionsToTxn and AddOffsetsToTxn name
the partitions and groups, and EndTxn <= 4 and TxnOffsetCommit <= 4 are sent (TransactionManager.java of Apache Kafka
4.3).
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkalite_sdk.producer.partition_sender import ProducerId
from kafkalite_sdk.producer.transactions.reactions import Step
from kafkalite_sdk.producer.transactions.state import V2, OffsetsToSend, TransactionCall

AddedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
CommittedTopic: TypeAlias = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic

ADD_PARTITIONS_MAX = 3  # later versions are those of brokers
BEFORE_V2_MAX = 4  # of EndTxn and TxnOffsetCommit
V2_MAX = 5


def init_producer_id(transactional_id: str, timeout_ms: int, current: ProducerId) -> TransactionCall:
    """Return the request for an id and an epoch.

    Arguments:
        transactional_id: of the producer.
        timeout_ms: after which the coordinator aborts a transaction, in ms.
        current: the coordinator increments its epoch, unless another producer has the transactional id (KIP-360);
            NO_PRODUCER_ID = it fences every other producer.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=current.producer_id,
        producer_epoch=current.epoch,
    )
    return TransactionCall(Step.INIT, request)


def add_partitions(
    transactional_id: str, identity: ProducerId, partitions: Iterable[TopicPartition]
) -> TransactionCall:
    """Return the request that adds partitions to the transaction.

    Arguments:
        transactional_id, identity: of the producer.
        partitions: to be added.
    """
    topics: dict[str, AddedTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, AddedTopic(name=topic, partitions=[])).partitions.append(partition)
    request = AddPartitionsToTxnRequest(
        transactions=[],
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=list(topics.values()),
    )
    return TransactionCall(Step.ADD_PARTITIONS, request, None, ADD_PARTITIONS_MAX)


def add_offsets(transactional_id: str, identity: ProducerId, group: str) -> TransactionCall:
    """Return the request that adds the offsets of a group to the transaction.

    Arguments:
        transactional_id, identity: of the producer.
        group: its id.
    """
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )
    return TransactionCall(Step.ADD_OFFSETS, request)


def commit_offsets(transactional_id: str, identity: ProducerId, entry: OffsetsToSend, version: int) -> TransactionCall:
    """Return the request that commits offsets with the transaction.

    Arguments:
        transactional_id, identity: of the producer.
        entry: the offsets, and the member that has read the records.
        version: of the transaction protocol.
    """
    topics: dict[str, CommittedTopic] = {}
    for (topic, partition), each in entry.offsets.items():
        topics.setdefault(topic, CommittedTopic(name=topic, partitions=[])).partitions.append(
            CommittedTopic.TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata=each.metadata,
            )
        )
    member = entry.member
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=member.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=list(topics.values()),
    )
    return TransactionCall(Step.COMMIT_OFFSETS, request, member.group, _version_max(version))


def end(transactional_id: str, identity: ProducerId, version: int, *, committed: bool) -> TransactionCall:
    """Return the request that ends the transaction.

    Arguments:
        transactional_id, identity: of the producer.
        version: of the transaction protocol.
        committed: commit, else abort.
    """
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=committed,
    )
    return TransactionCall(Step.END, request, None, _version_max(version))


def _version_max(version: int) -> int:
    return V2_MAX if version >= V2 else BEFORE_V2_MAX


def partition_codes(response: AddPartitionsToTxnResponse | TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """Return the error code of each partition."""
    if isinstance(response, TxnOffsetCommitResponse):
        return {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def codes_of(step: Step, response: Any) -> Iterator[tuple[str, int]]:
    """Yield what each error code of a response belongs to, "" = the whole request, and the code."""
    if step in (Step.ADD_PARTITIONS, Step.COMMIT_OFFSETS):
        for (topic, partition), code in partition_codes(response).items():
            yield f"{topic}-{partition}", code
    else:
        yield "", response.error_code
