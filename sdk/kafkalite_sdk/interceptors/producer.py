"""The stages of a producer: what an application may do before and after its records are queued, sent and acknowledged.

Invariants:
1. An exception of an interceptor never ends the producer. In `before_enqueue` it fails the record, in `before_send` the
   records of the batch. The other stages cannot change what happens to a record: their exceptions are passed to the
   exception handler of the event loop.
2. A batch has one `SealedBatch` from `before_send` to `on_acknowledgement`, also if it is sent several times. Nothing
   is kept of a batch after that.
Source: CallbackHandler of Kafka 0.7 and KIP-42 (`ProducerInterceptor`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, ProducerBatch
from kafkalite_sdk.interceptors.batches import SealedBatch
from kafkalite_sdk.interceptors.stages import methods, note
from kafkalite_sdk.values import ProducerRecord


class ProducerInterceptor:
    """Base class for interceptors of a producer. Override the stages that you need; they must return quickly."""

    def before_enqueue(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Called by `send`, before the serializers. Return the record, or another one.

        An exception fails the record: `send` raises it.
        """
        return record

    def after_enqueue(self, record: ProducerRecord[Any, Any], future: FutureRecordMetadata) -> None:
        """Called by `send` when the record is queued; `future` gets its outcome."""

    def before_send(self, batch: SealedBatch) -> None:
        """Called before a batch is sent for the first time. An exception fails its records."""

    def request_sent(self, node: int, batches: int, size: int) -> None:
        """Called when records left for a broker.

        Arguments:
            node: broker id.
            batches: number of batches in the request.
            size: of the batches in bytes.
        """

    def request_ended(self, node: int, seconds: float, error: BaseException | None) -> None:
        """Called when a request was answered, or is lost.

        Arguments:
            node: broker id.
            seconds: since it was sent.
            error: why it has no response; None = it has one.
        """

    def on_acknowledgement(self, batch: SealedBatch) -> None:
        """Called when a batch is acknowledged (`base_offset`) or its records have failed (`error`).

        A batch that the broker finds too large fails here, and its halves are sent as batches of their own.
        """

    def last_batch(self) -> Iterable[ProducerRecord[Any, Any]]:
        """Called once by `close`, before it flushes. The returned records are sent as the last ones."""
        return ()


class ProducerStages:
    """Calls the interceptors of one producer.

    Arguments:
        interceptors: in the order of their calls.
        loop: the event loop of the producer.
    """

    def __init__(self, interceptors: Sequence[ProducerInterceptor], loop: asyncio.AbstractEventLoop) -> None:
        def stage(name: str) -> list[Callable[..., Any]]:
            return methods(interceptors, ProducerInterceptor, name)

        self._loop = loop
        self._before_enqueue = stage("before_enqueue")
        self._after_enqueue = stage("after_enqueue")
        self._before_send = stage("before_send")
        self._request_sent = stage("request_sent")
        self._request_ended = stage("request_ended")
        self._on_acknowledgement = stage("on_acknowledgement")
        self._last_batch = stage("last_batch")
        self._sealed: dict[ProducerBatch, SealedBatch] = {}

    @property
    def intercepts_send(self) -> bool:
        """Whether `send` has stages."""
        return bool(self._before_enqueue or self._after_enqueue)

    def around(self, send: Callable[..., FutureRecordMetadata]) -> Callable[..., FutureRecordMetadata]:
        """Return a `send` that calls the interceptors before and after this one."""

        def intercepted(
            topic: str,
            value: Any = None,
            key: Any = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: Sequence[tuple[str | bytes, bytes | None]] | None = None,
        ) -> FutureRecordMetadata:
            record = self._changed(ProducerRecord(topic, value, key, partition, timestamp_ms, headers))
            topic, value, key, partition, timestamp_ms, headers = record
            future = send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
            for method in self._after_enqueue:
                self._call(method, record, future)
            return future

        return intercepted

    def _changed(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        for method in self._before_enqueue:
            try:
                record = method(record)
                if not isinstance(record, ProducerRecord):
                    raise TypeError(f"an interceptor returned {record!r}, expected a ProducerRecord")
            except Exception as error:
                note(method, error)
                raise
        return record

    def _call(self, method: Callable[..., Any], *args: object) -> Any:
        """Call a method that cannot fail a record any more; its exception is passed to the loop's handler."""
        try:
            return method(*args)
        except Exception as error:
            note(method, error)
            context = {"message": "an interceptor of a Producer raised", "exception": error}
            self._loop.call_exception_handler(context)
            return None

    def before_send(self, batch: ProducerBatch, data: bytes) -> None:
        """A batch leaves with this data. Raises what an interceptor raises: the batch fails."""
        if batch in self._sealed:
            return  # sent again
        if not (self._before_send or self._on_acknowledgement):
            return
        sealed = self._sealed[batch] = SealedBatch(batch.topic, batch.partition, batch.records_count, data)
        for method in self._before_send:
            try:
                method(sealed)
            except Exception as error:
                note(method, error)
                raise

    def ended(self, batch: ProducerBatch, error: BaseException | None) -> None:
        """A batch is acknowledged, or its records have failed."""
        sealed = self._sealed.pop(batch, None)
        if not self._on_acknowledgement:
            return
        if sealed is None:
            sealed = SealedBatch(batch.topic, batch.partition, batch.records_count)
        sealed.base_offset, sealed.error = batch.base_offset, error
        for method in self._on_acknowledgement:
            self._loop.call_soon(self._call, method, sealed)

    def request_sent(self, node: int, batches: int, size: int) -> None:
        """Records left for a broker."""
        for method in self._request_sent:
            self._loop.call_soon(self._call, method, node, batches, size)

    def request_ended(self, node: int, seconds: float, error: BaseException | None) -> None:
        """A request has ended."""
        for method in self._request_ended:
            self._loop.call_soon(self._call, method, node, seconds, error)

    def last_records(self) -> list[ProducerRecord[Any, Any]]:
        """The records that interceptors want to send before the producer closes."""
        found: list[ProducerRecord[Any, Any]] = []
        for method in self._last_batch:
            found += self._call(lambda method=method: list(method())) or ()
        return found
