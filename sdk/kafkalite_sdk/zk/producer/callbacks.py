"""The callbacks of the original asynchronous producer, over the interceptors of the producer of the SDK.

Source: CallbackHandler.scala of Kafka 0.7.2.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkalite_sdk.interceptors.batches import SealedBatch
from kafkalite_sdk.interceptors.producer import ProducerInterceptor
from kafkalite_sdk.values import ProducerRecord


class KeyedMessage(NamedTuple):
    """A record to send (KeyedMessage.scala).

    Attributes:
        topic: of the record.
        message: what the serializer accepts; bytes without one. None = null.
        key: what the key serializer accepts; None = null, and a random partition.
        part_key: chooses the partition in place of the key, and is not sent; None = the key does.
    """

    topic: str
    message: Any
    key: Any = None
    part_key: Any = None

    @property
    def partition_key(self) -> Any:
        """What chooses the partition; None = a random one."""
        return self.key if self.part_key is None else self.part_key


class CallbackHandler:
    """Base class for a `callback_handler`. Override the methods that you need; they must return quickly.

    `afterDequeuingExistingData` of the original has no counterpart: no thread takes records from a queue one by one.
    """

    def before_enqueue(self, message: KeyedMessage) -> KeyedMessage:
        """Called before a record enters the queue. Return it, or another one. `send` raises its exception."""
        return message

    def after_enqueue(self, message: KeyedMessage, added: bool) -> None:
        """Called after a record was queued, or was rejected.

        Arguments:
            message: the record.
            added: whether it is queued.
        """

    def before_sending_data(self, batch: SealedBatch) -> None:
        """Called before a batch is sent. An exception fails its records."""

    def last_batch_before_close(self) -> Iterable[ProducerRecord[Any, Any]]:
        """Called once by `close`. The returned records are sent as the last ones; keys and values are bytes."""
        return ()

    def close(self) -> None:
        """Called when the producer is closed."""


class CallbackInterceptor(ProducerInterceptor):
    """Calls a `CallbackHandler` at stages of the producer of the SDK.

    Arguments:
        callbacks: of the application.
    """

    def __init__(self, callbacks: CallbackHandler) -> None:
        self._callbacks = callbacks

    def before_send(self, batch: SealedBatch) -> None:
        """A batch is sent."""
        self._callbacks.before_sending_data(batch)

    def last_batch(self) -> Iterable[ProducerRecord[Any, Any]]:
        """The producer closes."""
        return self._callbacks.last_batch_before_close()
