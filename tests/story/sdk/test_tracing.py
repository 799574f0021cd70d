"""OpenTelemetry by the stages of interceptors: one trace spans producer and consumer; nothing is kept."""

import gc
import tracemalloc
from typing import Any

from kafkalite_sdk.interceptors import SealedBatch
from kafkalite_sdk.interceptors.opentelemetry import LINKS_MAX, ConsumerTracing, ProducerTracing
from kafkalite_sdk.producer.producer import Producer
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, consuming
from tests.story.sdk.producer_rig import numbers, producing


def tracing() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@story()
async def test_one_trace_spans_producer_and_consumer(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    provider, exporter = tracing()
    received = ConsumerTracing(provider)
    async with (
        producing(world, interceptors=[ProducerTracing(provider)]) as producer,
        consuming(world, A, interceptors=[received]) as consumer,
    ):
        sent = [producer.send("orders", value, headers=[("kept", b"yes")]) for value in numbers(3)]
        for each in sent:
            await each
        found: list[Any] = []
        while len(found) < 3:
            found += await consumer.poll(1.0)
        with received.process(found[0]):
            pass
        await pass_time(0.1)
    assert all(dict(record.headers)["kept"] == b"yes" for record in found)
    spans = exporter.get_finished_spans()
    named = {name: [span for span in spans if span.name == f"{name} orders"] for name in ("create", "send", "receive")}
    created = [span.context.span_id for span in named["create"]]
    assert [span.parent.span_id for span in named["receive"]] == created
    assert [span.context.trace_id for span in named["receive"]] == [span.context.trace_id for span in named["create"]]
    (send,) = named["send"]
    assert [link.context.span_id for link in send.links] == created
    assert send.attributes["messaging.kafka.offset"] == 0
    (process,) = [span for span in spans if span.name == "process orders"]
    assert process.parent.span_id == created[0]
    polls = [span for span in spans if span.name == "poll orders"]
    assert [link.context.span_id for span in polls for link in span.links] == created


def test_memory_stays_flat() -> None:
    """Spans are not exported, so what stays is what the interceptors keep."""

    async def main() -> None:
        tracer = ProducerTracing(TracerProvider())
        largest = 0

        def handle(batch: SealedBatch) -> None:
            nonlocal largest
            largest = max(largest, len(tracer._open))

        async with Producer("nowhere:9092", handler=handle, interceptors=[tracer], batch_size=4096) as producer:

            async def send(count: int) -> int:
                for _ in range(count):
                    producer.send("orders", b"value")
                    await producer.drain()
                await producer.flush()
                await pass_time(0.1)
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            tracemalloc.start()
            try:
                before = await send(5_000)
                after = await send(20_000)
            finally:
                tracemalloc.stop()
            assert after - before < 100_000
            assert largest > 0
            assert tracer._open == {}
            assert producer._stages._sealed == {}

    run_virtually(main)


def test_span_of_a_batch_has_a_bounded_number_of_links() -> None:
    async def main() -> None:
        provider, exporter = tracing()
        handled: list[SealedBatch] = []
        interceptors = [ProducerTracing(provider)]
        async with Producer("nowhere:9092", handler=handled.append, interceptors=interceptors) as producer:
            for value in numbers(2 * LINKS_MAX):
                producer.send("orders", value)
            await producer.flush()
            await pass_time(0.1)
        sends = [span for span in exporter.get_finished_spans() if span.name == "send orders"]
        assert [len(span.links) for span in sends] == [LINKS_MAX]

    run_virtually(main)
