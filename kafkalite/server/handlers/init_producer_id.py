"""InitProducerId, key 22, v0-5: returns a producer id for an idempotent or a transactional producer (KIP-98).

An idempotent producer gets a new id each time; ids never repeat. A transactional producer begins a session with the id
of its transactional id and a new epoch, which fences earlier producers with this transactional id.

Version notes: from v3 on a producer may send its old id and epoch (KIP-360); without a transactional id it gets a new
id all the same. v0-3 have INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
"""

from functools import partial

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.server.requests.call import TransactionCall
from kafkalite.server.requests.transactions.error_codes import code_of_version
from kafkalite.state.transactions.requests import InitProducerId, ProducerId

NONE = -1


def init_producer_id(call: TransactionCall, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    """Return the next id of this broker's block, which is durable before its first use, or begin a session."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return response_for(call, ProducerId(KafkaErrorCode.INVALID_REQUEST))
    if request.transactional_id is not None:
        begin_session(call, request, request.transactional_id)
        return None

    limits = call.context.dispatcher.limits

    def drawn(producer_id: int, error: int) -> None:
        if error and limits is not None:
            limits.uncount_producer_id(call.connection)
        epoch = NONE if error else 0
        call.answer(InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch))

    if limits is not None:  # it is counted before the end, as requests behind this one may wait for the same block
        limits.count_producer_id(call.connection)
    call.context.producer_ids.draw(call.guard(drawn))
    return None


def begin_session(call: TransactionCall, request: InitProducerIdRequest, transactional_id: str) -> None:
    """Have the coordinator begin a session of a transactional producer."""
    init = InitProducerId(transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch)
    respond = partial(response_for, call)
    call.context.transactions.init_producer_id(init, call.completion(respond, lambda error: respond(ProducerId(error))))


def response_for(call: TransactionCall, result: ProducerId) -> InitProducerIdResponse:
    """The response for a result of the coordinator."""
    return InitProducerIdResponse(
        error_code=code_of_version(call, result.error), producer_id=result.producer_id, producer_epoch=result.epoch
    )
