"""Traces of OpenTelemetry by the stages of interceptors: `pip install 'kafkalite[opentelemetry]'`.

The context of a trace is in the headers `traceparent` and `tracestate` (W3C Trace Context). A producer begins a span
for each record, whose context is sent, and one for each batch, which links the spans of its records. A consumer begins
a span for each record in the trace of its producer, and one for each poll, which links them.

Memory: nothing is kept of a record; an open span is kept for each batch that is being sent. A span has LINKS_MAX links.
Source: the semantic conventions of OpenTelemetry for messaging and Kafka.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.interceptors.batches import SealedBatch
from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor
from kafkalite_sdk.interceptors.producer import ProducerInterceptor
from kafkalite_sdk.values import ProducerRecord

LINKS_MAX = 128
NAME = "kafkalite_sdk"


class ProducerTracing(ProducerInterceptor):
    """Traces the records and batches of one producer.

    Arguments:
        provider: a TracerProvider; None = the global one.
    """

    def __init__(self, provider: Any = None) -> None:
        self._tracing = _Tracing(provider)
        self._open: dict[SealedBatch, Any] = {}

    def before_enqueue(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Begin and end the span of a record, and add its context to the headers."""
        trace, tracing = self._tracing.trace, self._tracing
        attributes = tracing.attributes("create", record.topic)
        with tracing.tracer.start_span(
            f"create {record.topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            tracing.propagator.inject(carrier, context=trace.set_span_in_context(span))
        kept = [each for each in record.headers or () if each[0] not in tracing.propagator.fields]
        return record._replace(headers=[*kept, *((name, text.encode()) for name, text in carrier.items())])

    def before_send(self, batch: SealedBatch) -> None:
        """Begin the span of a batch."""
        tracing = self._tracing
        attributes = tracing.attributes("send", batch.topic, batch.records_count)
        attributes["messaging.destination.partition.id"] = str(batch.partition)
        links = tracing.links(record.headers for record in batch.records()[:LINKS_MAX])
        kind = tracing.trace.SpanKind.CLIENT
        self._open[batch] = tracing.tracer.start_span(
            f"send {batch.topic}", kind=kind, attributes=attributes, links=links
        )

    def on_acknowledgement(self, batch: SealedBatch) -> None:
        """End the span of a batch."""
        span = self._open.pop(batch, None)
        if span is None:
            return
        if batch.error is None:
            span.set_attribute("messaging.kafka.offset", batch.base_offset)
        else:
            span.record_exception(batch.error)
            span.set_status(self._tracing.trace.StatusCode.ERROR, str(batch.error))
        span.end()


class ConsumerTracing(ConsumerInterceptor):
    """Traces the records and polls of one consumer; `process` traces a handler.

    Arguments:
        provider: a TracerProvider; None = the global one.
    """

    def __init__(self, provider: Any = None) -> None:
        self._tracing = _Tracing(provider)

    def on_record(self, record: Record[Any, Any]) -> None:
        """Begin and end the span of a record in the trace of its producer."""
        self._start("receive", record).end()

    def on_poll(self, records: Sequence[Record[Any, Any]]) -> None:
        """Begin and end the span of a poll."""
        tracing = self._tracing
        topics = ",".join(sorted({record.topic for record in records}))
        links = tracing.links(record.headers for record in records[:LINKS_MAX])
        attributes = tracing.attributes("poll", topics, len(records))
        kind = tracing.trace.SpanKind.CLIENT
        tracing.tracer.start_span(f"poll {topics}", kind=kind, attributes=attributes, links=links).end()

    def process(self, record: Record[Any, Any]) -> Any:
        """Return a context manager: the current span is that of the handler, in the trace of the producer."""
        return self._tracing.trace.use_span(
            self._start("process", record), end_on_exit=True, record_exception=True, set_status_on_exception=True
        )

    def _start(self, operation: str, record: Record[Any, Any]) -> Any:
        tracing = self._tracing
        attributes = tracing.attributes(operation, record.topic)
        attributes["messaging.destination.partition.id"] = str(record.partition)
        attributes["messaging.kafka.offset"] = record.offset
        context = tracing.context(record.headers)
        kind = tracing.trace.SpanKind.CONSUMER
        return tracing.tracer.start_span(
            f"{operation} {record.topic}", context=context, kind=kind, attributes=attributes
        )


class _Tracing:
    """What both sides use of OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.trace = trace
        self.tracer = trace.get_tracer(NAME, tracer_provider=provider)
        self.propagator = TraceContextTextMapPropagator()

    @staticmethod
    def attributes(operation: str, topic: str, count: int | None = None) -> dict[str, Any]:
        """The attributes of a span."""
        attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.destination.name": topic,
        }
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        return attributes

    def context(self, headers: Iterable[tuple[str, bytes | None]]) -> Any:
        """The context that headers name; an empty one without them, or where they are malformed."""
        from opentelemetry.context import Context

        return self.propagator.extract(_carrier(headers), context=Context())

    def links(self, headers: Iterable[Iterable[tuple[str, bytes | None]]]) -> list[Any]:
        """Links to the spans of records."""
        spans = (self.trace.get_current_span(self.context(each)).get_span_context() for each in headers)
        return [self.trace.Link(each) for each in spans if each.is_valid]


def _carrier(headers: Iterable[tuple[str, bytes | None]]) -> Mapping[str, str]:
    return {name: value.decode("latin-1") for name, value in headers if value is not None}
