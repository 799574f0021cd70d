"""The error codes of transactions that old versions of requests have instead of newer ones: one table.

An old client does not know PRODUCER_FENCED (KIP-588). Clients of TxnOffsetCommit before v2 may crash at
COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).

Source: KafkaApis.scala (the response callbacks of the requests of transactions).
"""

from typing import Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.server.requests.call import Call

FENCED_BEFORE = {KafkaErrorCode.PRODUCER_FENCED: KafkaErrorCode.INVALID_PRODUCER_EPOCH}
LOADING_BEFORE = {KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS: KafkaErrorCode.COORDINATOR_NOT_AVAILABLE}
OLD_CODES: dict[int, tuple[int, dict[KafkaErrorCode, KafkaErrorCode]]] = {
    22: (4, FENCED_BEFORE),  # InitProducerId
    24: (2, FENCED_BEFORE),  # AddPartitionsToTxn
    25: (2, FENCED_BEFORE),  # AddOffsetsToTxn
    26: (2, FENCED_BEFORE),  # EndTxn
    28: (2, LOADING_BEFORE),  # TxnOffsetCommit
}
"""By API key: the first version with the new codes, and the old code of each new one."""


def code_of_version(call: Call[Any], error: int) -> int:
    """The error code in the version of a request; an `ErrorWithReason` becomes its code."""
    since, old = OLD_CODES[call.header.api_key]
    code = KafkaErrorCode(error)
    return old.get(code, code) if call.version < since else code
