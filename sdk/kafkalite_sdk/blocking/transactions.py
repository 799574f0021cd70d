"""Transactions of blocking clients: the block, and a blocking consumer as a part of the producer's transactions.

Producer and consumer have a loop and a thread each. What the transaction needs of the consumer is read in the thread of
the application; after an abort the loop of the producer sets the positions under the lock of the consumer, so that no
record of the aborted transaction is returned by the next poll.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk.producer.transactions.block import Transaction as BlockInLoop

if TYPE_CHECKING:
    from kafkalite_sdk.blocking.loop_consumer import LoopConsumer
    from kafkalite_sdk.blocking.loop_thread import LoopThread
    from kafkalite_sdk.membership.settings import MemberIdentity
    from kafkalite_sdk.values import OffsetAndMetadata


class ConsumerInTransactions:
    """A blocking consumer as `kafkalite_sdk.producer.transactions.participants.TransactionalConsumer`.

    Arguments:
        client: the consumer of the SDK.
        thread: of the client.
    """

    def __init__(self, client: "LoopConsumer[Any, Any]", thread: "LoopThread") -> None:
        self._client = client
        self._thread = thread
        self._offsets: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self._member: MemberIdentity | KafkaError | None = None

    def read(self) -> Self:
        """Read offsets and member, in the thread of the application. Raises ClientUseError."""

        def current() -> "tuple[Mapping[TopicPartition, OffsetAndMetadata], MemberIdentity | KafkaError]":
            offsets = self._client._offsets_to_send()
            try:
                return offsets, self._client.group_metadata()
            except KafkaError as error:  # needed by send_offsets only
                return offsets, error

        self._offsets, self._member = self._thread.call(current)
        return self

    def group_metadata(self) -> "MemberIdentity":
        """Return the member as it was read. Raises the error of the consumer."""
        assert self._member is not None, "read() comes first"
        if isinstance(self._member, KafkaError):
            raise self._member
        return self._member

    def _offsets_to_send(self) -> "Mapping[TopicPartition, OffsetAndMetadata]":
        """Return the offsets as they were read."""
        return self._offsets

    def _continue_at_committed(self) -> None:
        """Continue at the committed offsets; in the loop of the producer."""
        if not self._thread.ended:
            self._thread.lock.inside(self._client.return_to_committed)
            self._thread.call_soon(self._client.work_soon)


class Transaction:
    """A transaction that begins with the block, and is committed at its end, or aborted by an exception.

    Arguments:
        block: of the producer of the SDK.
        wait_for: runs a coroutine function in the loop of the producer, and waits for it.
    """

    def __init__(self, block: BlockInLoop, wait_for: Callable[..., None]) -> None:
        self._block = block
        self._wait_for = wait_for

    def __enter__(self) -> Self:
        self._wait_for(self._block.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait_for(self._block.__aexit__, kind, error, trace)
