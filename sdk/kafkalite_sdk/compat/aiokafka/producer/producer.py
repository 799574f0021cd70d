"""aiokafka's `AIOKafkaProducer` on the engine of `kafkalite_sdk.Producer`.

`await send()` waits for the metadata of the topic and for space in the buffer, and returns the future of the record.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafkalite.errors import BufferExhaustedError, ClientUseError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, RecordMetadata
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.client.topic_partitions import partitions_of, wait_for_topic
from kafkalite_sdk.compat.aiokafka.abc import AbstractTokenProvider
from kafkalite_sdk.compat.aiokafka.errors import IllegalOperation
from kafkalite_sdk.compat.aiokafka.lifetime import LoopClient
from kafkalite_sdk.compat.aiokafka.partitioner import DefaultPartitioner
from kafkalite_sdk.compat.aiokafka.producer.message_accumulator import BatchBuilder
from kafkalite_sdk.compat.aiokafka.producer.options import Partitioner, _missing, new_producer
from kafkalite_sdk.compat.aiokafka.producer.transaction import AuthorizedTransaction, raise_authorization
from kafkalite_sdk.compat.aiokafka.util import commit_structure_validate
from kafkalite_sdk.producer.transactions.block import Transaction
from kafkalite_sdk.producer.transactions.calls import Transactions
from kafkalite_sdk.values import OffsetAndMetadata

_DEFAULT_PARTITIONER = DefaultPartitioner()
Serialize = Callable[[Any], bytes | None]


class AIOKafkaProducer(LoopClient):
    """Sends records to topics; see aiokafka's documentation and docs/aiokafka.md.

    Arguments: those of aiokafka 0.14, with its defaults. Times are in ms, sizes in bytes.
        api_version, loop: accepted without effect.
        sasl_mechanism: "GSSAPI" is rejected.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: str | None = None,
        acks: Any = _missing,
        key_serializer: Serialize | None = None,
        value_serializer: Serialize | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: Partitioner = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: float = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name != "self"}
        super().__init__(loop, "AIOKafkaProducer")
        self._without_acks = acks == 0
        self._producer = new_producer(**arguments)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._max_batch_size = max_batch_size
        self._partitioner = partitioner
        self._request_timeout_s = request_timeout_ms / 1000
        self._closed = False
        self._view = self._producer._client.view

    async def start(self) -> None:
        """Connect. Raises KafkaConnectionError."""
        self._open()
        await self._producer.start()

    async def stop(self) -> None:
        """Send all records, wait for their acknowledgements, and close the connections. A second call waits, too."""
        self._closed = True
        await self._producer._close(None, raises=False)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    async def flush(self) -> None:
        """Wait until every record that was sent before is acknowledged or has failed."""
        await self._producer._started().flush(None)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic; wait for its metadata."""
        return await self._partitions(topic)

    async def _partitions(self, topic: str) -> set[int]:
        if self._closed:
            raise ClientUseError("the producer is stopped")
        found = partitions_of(self._view, topic)
        return found or await wait_for_topic(self._producer._client, topic, self._request_timeout_s)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue a record; wait for the metadata of its topic and for space in the buffer.

        Arguments:
            topic: its name.
            value, key: what the serializers accept; bytes without serializers. One of them is not None.
            partition: None = the partitioner chooses.
            timestamp_ms: None = now.
            headers: name and value of each.

        Returns: the future of its metadata; of None with acks=0.
        Raises: KafkaTimeoutError without space or metadata in time; MessageSizeTooLargeError.
        """
        assert value is not None or key is not None, "Need at least one: key or value"
        if topic not in self._view.topics or self._closed:
            await self._partitions(topic)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        future = await self._send(topic, value, key, partition, timestamp_ms, headers)
        return _without_metadata(future) if self._without_acks else future  # type: ignore[return-value]

    async def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> FutureRecordMetadata:
        driver = self._producer._started()
        if driver.transactions is not None:
            _check_open(driver.transactions)
        accumulator = driver.accumulator
        if accumulator.iteration_due():
            await driver.iteration()
        while True:
            try:
                return accumulator.send(
                    topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                )
            except BufferExhaustedError:
                await driver.space()

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement.

        Arguments: as of `AIOKafkaProducer.send`.
        Raises: as `AIOKafkaProducer.send`.
        """
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch for `send_batch`."""
        return BatchBuilder(self._max_batch_size, self._key_serializer, self._value_serializer)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue the records of a batch, one behind the other.

        Arguments:
            batch: of `create_batch`.
            topic, partition: where the records go; partition None = the partitioner chooses one for a key of None.

        Returns: the future of the metadata of the first record; it is done when all are.
        """
        partitions = await self._partitions(topic)
        if partition is None:
            leaders = {number for number in partitions if self._view.leader(topic, number) != NO_LEADER}
            partition = self._partitioner(None, sorted(partitions), sorted(leaders))
        if partition not in partitions:
            raise AssertionError(f"topic {topic} has no partition {partition}")
        batch.close()
        futures = [
            await self._send(topic, each.value, each.key, partition, each.timestamp_ms, each.headers)
            for each in batch.records
        ]
        return asyncio.ensure_future(_first(futures, without_acks=self._without_acks))

    # transactions

    def _transactions(self) -> Transactions:
        """The transactions of the engine. Raises what aiokafka raises without a transactional id."""
        if self._producer._settings.transactional_id is None:
            raise IllegalOperation("Transactional operations require a transactional_id")
        return self._producer._transactions()

    async def begin_transaction(self) -> None:
        """Begin a transaction; wait for the end of the last one, if it still runs."""
        await self._transactions().begin((), self._request_timeout_s)

    async def commit_transaction(self) -> None:
        """Commit the open transaction. Raises AuthorizationError, TransactionAbortedError, ProducerFenced."""
        await raise_authorization(self._transactions().commit(None))

    async def abort_transaction(self) -> None:
        """Abort the open transaction. Raises ProducerFenced."""
        await self._transactions().abort(None)

    def transaction(self) -> Transaction:
        """Return the block of one transaction: `async with producer.transaction():`."""
        return AuthorizedTransaction(self._transactions(), ())

    async def send_offsets_to_transaction(
        self, offsets: "Mapping[TopicPartition, int | tuple[int, str]]", group_id: str
    ) -> None:
        """Commit offsets of a group with the open transaction.

        Arguments:
            offsets: offset, or offset and metadata, by partition.
            group_id: the group; its generation is not checked (aiokafka knows no group metadata).

        Raises:
            AuthorizationError: the user may not commit offsets of the group; the transaction must be aborted.
            TransactionAbortedError: it must be aborted for another reason. IllegalOperation: none is open.
        """
        transactions = self._transactions()
        _check_open(transactions)
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        found = {
            each: OffsetAndMetadata(offset.offset, offset.metadata)
            for each, offset in commit_structure_validate(offsets).items()
        }
        await raise_authorization(transactions.send_offsets(found, group_id, None))


def _check_open(transactions: Transactions) -> None:
    """Raise what aiokafka raises outside of a transaction; the errors of a failed one come from the engine."""
    transactions.raise_error()
    if not transactions.open:
        raise IllegalOperation("Can't send messages while not in transaction")


async def _first(futures: list[FutureRecordMetadata], *, without_acks: bool) -> Any:
    first = (await asyncio.gather(*futures))[0]
    return None if without_acks else first


def _without_metadata(future: FutureRecordMetadata) -> "asyncio.Future[None]":
    """Return a future of None: the broker does not answer, so there is no offset."""
    found: asyncio.Future[None] = future.get_loop().create_future()

    def ended(sent: FutureRecordMetadata) -> None:
        if found.done():
            return
        if sent.cancelled():
            found.cancel()
            return
        error = sent.exception()
        if error is None:
            found.set_result(None)
        else:
            found.set_exception(error)

    future.add_done_callback(ended)
    return found
