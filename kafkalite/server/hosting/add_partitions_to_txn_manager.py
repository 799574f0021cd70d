"""Asks the coordinators on other brokers with AddPartitionsToTxn: each broker has one request in flight.

The checks that arrive meanwhile are the next request. A transactional id occurs once in a request, as the response
names it.

Source: AddPartitionsToTxnManager.java of Apache Kafka 4.3. Deviation: there a second check of a transactional id, in
the same request, fails the first one with NETWORK_EXCEPTION.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from kafkalite.cluster.broker_peers import BrokerPeers, CallResult
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafkalite.server.hosting.transaction_check import Check

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = Transaction.AddPartitionsToTxnTopic


class ManagerHost(Protocol):
    """The broker, as the manager uses it."""

    peers: BrokerPeers | None  # None: the broker is alone, and coordinates every transaction


class AddPartitionsToTxnManager:
    """The requests to other brokers.

    Arguments:
        host: the broker.
        use_results: receives the error code of each check of a request, 0 = none.
    """

    def __init__(self, host: ManagerHost, use_results: Callable[[Mapping[Check, int]], object]) -> None:
        self._host = host
        self._use_results = use_results
        self._following: dict[int, list[Check]] = {}  # by broker with a request in flight: the checks after it
        self._closed = False

    def ask(self, broker_id: int, checks: list[Check]) -> None:
        """Ask a broker now, or after the request in flight."""
        if broker_id in self._following:
            self._following[broker_id] += checks
        else:
            self._send(broker_id, checks)

    def close(self) -> None:
        """Send no request any more."""
        self._closed = True

    def _send(self, broker_id: int, checks: list[Check]) -> None:
        """Send a request with one question per transactional id; the others follow with the next one."""
        following, asked = list[Check](), dict[str, list[Check]]()
        for check in checks:
            same = asked.setdefault(check.key.transactional_id, [])
            (same if not same or same[0].key == check.key else following).append(check)
        self._following[broker_id] = following
        request = AddPartitionsToTxnRequest(
            transactions=[question(each) for each in asked.values()], v3_and_below_topics=[]
        )
        assert self._host.peers is not None, "a broker that is alone coordinates every transaction"
        sent = [check for each in asked.values() for check in each]
        self._host.peers.call(broker_id, request, partial(self._answered, broker_id, sent))

    def _answered(self, broker_id: int, checks: list[Check], result: CallResult) -> None:
        following = [check for check in self._following.pop(broker_id) if check.on_result is not None]
        if following and not self._closed:
            self._send(broker_id, following)
        errors = {} if result.error else errors_of(result.response)
        missing = result.error or (result.response.error_code or KafkaErrorCode.NETWORK_EXCEPTION)
        self._use_results(
            {check: errors.get((check.key.transactional_id, check.partition), missing) for check in checks}
        )


def question(checks: list[Check]) -> Transaction:
    """Return the part of a request for checks with one key."""
    indexes: dict[str, set[int]] = {}
    for check in checks:
        indexes.setdefault(check.partition.topic, set()).add(check.partition.partition)
    key = checks[0].key
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=key.producer_id,
        producer_epoch=key.epoch,
        verify_only=not key.add,
        topics=[Topic(name=name, partitions=sorted(found)) for name, found in indexes.items()],
    )


def errors_of(response: AddPartitionsToTxnResponse) -> dict[tuple[str, TopicPartition], int]:
    """Return the error code of each partition of each transactional id."""
    return {
        (each.transactional_id, TopicPartition(topic.name, found.partition_index)): found.partition_error_code
        for each in response.results_by_transaction
        for topic in each.topic_results
        for found in topic.results_by_partition
    }
