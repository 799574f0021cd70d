"""Ends transactions that their producers have detached, by transactional id, producer id and epoch.

With version 2 EndTxn increments the epoch, so a second EndTxn has the previous one: the coordinator answers it like the
first, if the outcome is the same. With version 1 the epoch stays, and a completed transaction answers the same.
Source: endTransaction of TransactionCoordinator.scala, Apache Kafka 4.3; KIP-890.
"""

from collections.abc import Collection, Iterator

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_result
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.values import DetachedTransaction

VERSION_MAX = {1: 4, 2: 5}
"""Of EndTxn, by version of the transaction protocol: version 5 increments the epoch."""


async def end_detached(
    driver: Driver, detached: Collection[DetachedTransaction], committed: bool, timeout_s: float | None
) -> Outcomes[DetachedTransaction, None]:
    """Commit or abort detached transactions.

    Arguments:
        driver: sends the requests.
        detached: the transactions.
        committed: commit, else abort.
        timeout_s: deadline in seconds; None = `default_api_timeout_ms`.
    """
    left_s = driver.countdown(timeout_s)
    ended: dict[DetachedTransaction, KafkaError | None] = {}
    for version in sorted({each.version for each in detached}):
        operation = _operation(version, committed)
        found = await driver.run(operation, [each for each in detached if each.version == version], left_s())
        found.ignore_errors()  # those of the result count
        ended |= found.ended
    return Outcomes({each: ended[each] for each in detached})


def _operation(version: int, committed: bool) -> Operation[DetachedTransaction, None]:
    def build(keys: Collection[DetachedTransaction]) -> EndTxnRequest:
        (key,) = keys
        return EndTxnRequest(
            transactional_id=key.transactional_id,
            producer_id=key.producer_id,
            producer_epoch=key.producer_epoch,
            committed=committed,
        )

    def read(
        response: EndTxnResponse, keys: Collection[DetachedTransaction]
    ) -> Iterator[tuple[DetachedTransaction, KafkaError | None]]:
        (key,) = keys
        yield key, check_result(response.error_code, None, None)

    return Operation(
        EndTxnRequest, build, read, lambda key: key.transactional_id, single=True, version_max=VERSION_MAX[version]
    )
