"""InitProducerId, key 22, v0-5: returns a new producer id for an idempotent producer (KIP-98); ids never repeat.

Version notes: from v3 on a producer may send its old id and epoch (KIP-360); without a transactional id it gets a new
id all the same. A transactional id is rejected until transactions are served: see `server.requests.no_transactions`.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.server.requests.call import ProducerCall
from kafkalite.server.requests.no_transactions import NO_TRANSACTIONS_ERROR


def init_producer_id(call: ProducerCall, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    """Return the next id of this broker's block; the block is durable before its first use."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=transactional_error(call, request.transactional_id), producer_id=-1, producer_epoch=-1
        )

    def drawn(producer_id: int, error: int) -> None:
        epoch = -1 if error else 0
        call.answer(InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch))

    call.context.producer_ids.draw(call.guard(drawn))
    return None


def transactional_error(call: ProducerCall, transactional_id: str) -> KafkaErrorCode:
    """Return the error for a transactional id; an empty id fails with INVALID_REQUEST, as in Kafka."""
    if not transactional_id:
        return KafkaErrorCode.INVALID_REQUEST
    call.context.transactional_clients.warn(call.client_id, call.connection.peer_host, transactional_id)
    return NO_TRANSACTIONS_ERROR
