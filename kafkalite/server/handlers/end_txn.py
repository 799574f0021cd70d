"""EndTxn, key 26, v0-5: commits or aborts a transaction. The response leaves when the decision is durable; the markers
follow.

Version notes: v0-1 have INVALID_PRODUCER_EPOCH for PRODUCER_FENCED; v5 is that of clients with `transaction.version` 2,
which go on with the id and epoch of the response (KIP-890).
"""

from functools import partial

from kafkalite.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkalite.server.requests.call import TransactionCall
from kafkalite.server.requests.transactions.error_codes import code_of_version
from kafkalite.state.transactions.requests import EndTransaction, ProducerId
from kafkalite.state.transactions.states import TransactionVersion

TV2_SINCE = 5


def end_txn(call: TransactionCall, request: EndTxnRequest) -> None:
    """Have the coordinator decide."""
    version = TransactionVersion.TV2 if call.version >= TV2_SINCE else TransactionVersion.TV1
    end = EndTransaction(
        request.transactional_id, request.producer_id, request.producer_epoch, request.committed, version
    )
    respond = partial(response_for, call)
    call.context.transactions.end_transaction(end, call.completion(respond, lambda error: respond(ProducerId(error))))


def response_for(call: TransactionCall, result: ProducerId) -> EndTxnResponse:
    """The response for a result of the coordinator."""
    return EndTxnResponse(
        error_code=code_of_version(call, result.error), producer_id=result.producer_id, producer_epoch=result.epoch
    )
