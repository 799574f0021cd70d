"""Rejects transactional clients, until this broker has a transaction coordinator.

Clients repeat FindCoordinator and InitProducerId without a limit while the error is retriable, so a retriable error
makes `initTransactions()` hang. librdkafka also repeats UNSUPPORTED_VERSION and INVALID_REQUEST;
TRANSACTIONAL_ID_AUTHORIZATION_FAILED is the only error that every client treats as fatal at this step
(rdkafka_txnmgr.c, TransactionManager.java, kafka-python's and aiokafka's transaction managers).
"""

import logging

from kafkalite.errors import KafkaErrorCode

LOGGER = logging.getLogger("kafkalite.server")
CLIENTS_MAX = 1000  # remembered at once; client ids are the clients' choice
NO_TRANSACTIONS_ERROR = KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_TRANSACTIONS = "This version of kafkalite has no transactions: use an idempotent producer without transactional.id."


class TransactionalClients:
    """Logs one warning for each client that asks for transactions.

    A client is its client id at its host. The newest `CLIENTS_MAX` clients are remembered, so that the memory is
    bounded; a client that was forgotten is logged again.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], None] = {}

    def warn(self, client_id: str, host: str, transactional_id: str) -> None:
        """Log that a client's request for transactions is rejected, unless the client was logged before.

        Arguments:
            client_id: as the client names itself.
            host: address of the client.
            transactional_id: of the rejected request.
        """
        client = client_id, host
        if client in self._known:
            return
        if len(self._known) >= CLIENTS_MAX:
            del self._known[next(iter(self._known))]
        self._known[client] = None
        LOGGER.warning(
            "client %r at %s: transactional.id %r is rejected: this version has no transactions",
            client_id,
            host,
            transactional_id,
        )
