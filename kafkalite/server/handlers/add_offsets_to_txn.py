"""AddOffsetsToTxn, key 25, v0-4: adds the offsets of a group to a transaction: its partition of `__consumer_offsets`.

Version notes: v0-1 have INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
"""

from functools import partial

from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkalite.server.requests.call import CoordinatorCall
from kafkalite.server.requests.transactions.error_codes import code_of_version
from kafkalite.state.transactions.requests import AddPartitions
from kafkalite.state.transactions.states import TransactionVersion


def add_offsets_to_txn(call: CoordinatorCall, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
    """Have the coordinator add the partition. A client may send this before it looks for the coordinator of its group:
    in a cluster, COORDINATOR_NOT_AVAILABLE while the offsets topic is being created.
    """
    respond = partial(response_for, call)
    index = call.context.groups.partition_for(request.group_id)
    if index < 0:
        unavailable = respond(KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
        call.context.groups.ensure_topic(call.guard(lambda _error: call.answer(unavailable)))
        return None
    add = AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset((TopicPartition(OFFSETS.name, index),)),
        TransactionVersion.TV1,
    )
    call.context.transactions.add_partitions(add, call.completion(respond, respond))
    return None


def response_for(call: CoordinatorCall, error: int) -> AddOffsetsToTxnResponse:
    """The response for an error code, 0 = none."""
    return AddOffsetsToTxnResponse(error_code=code_of_version(call, error))
