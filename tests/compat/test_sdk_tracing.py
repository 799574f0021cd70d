"""Traces of OpenTelemetry: headers carry a trace from client to client, and traced clients keep nothing of a record."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from kafkalite_sdk import Consumer, Producer
from kafkalite_sdk.interceptors.opentelemetry import ConsumerTracing, ProducerTracing
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kafkalite.model import TopicPartition
from tests.compat.conftest import MakeTopic
from tests.fix_torture import is_long
from tests.kit import traced_clients
from tests.kit.clients import AioKafka, Client, Confluent, Record

DEADLINE_S = 60
SHORT, LONG = 40_000, 2_000_000
WARM_UP_MARKS = 3
GROWTH_BYTES = 2 << 20


@pytest.mark.parametrize("other", [AioKafka(), Confluent()], ids=lambda client: client.name)
def test_a_trace_spans_both_clients_in_both_directions(address: str, new_topic: MakeTopic, other: Client) -> None:
    """The SDK sends an order; the other client continues its trace and sends an invoice; the SDK receives it."""
    orders, invoices = new_topic(), new_topic()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    propagator = TraceContextTextMapPropagator()

    async def send() -> None:
        async with Producer(address, interceptors=[ProducerTracing(provider)]) as producer:
            await producer.send(orders, b"order", headers=[("kept", b"yes")])

    async def receive() -> list[Any]:
        consumer: Consumer[bytes, bytes] = Consumer(
            address, auto_offset_reset="earliest", interceptors=[ConsumerTracing(provider)]
        )
        async with asyncio.timeout(DEADLINE_S), consumer:
            consumer.assign([TopicPartition(invoices, 0)])
            return await consumer.poll(DEADLINE_S)

    asyncio.run(send())
    (order,) = other.read(address, orders, 1)
    headers = {name: (value or b"").decode() for name, value in order.headers}
    assert headers.keys() == {"kept", "traceparent"}
    carrier: dict[str, str] = {}
    with provider.get_tracer("other").start_as_current_span("bill", context=propagator.extract(headers)):
        propagator.inject(carrier)
    other.write(
        address, invoices, [Record(b"invoice", headers=tuple((name, text.encode()) for name, text in carrier.items()))]
    )
    (invoice,) = asyncio.run(receive())
    assert invoice.value == b"invoice"
    spans = {span.name: span for span in exporter.get_finished_spans()}
    create, bill, receipt = (spans[name] for name in (f"create {orders}", "bill", f"receive {invoices}"))
    assert create.parent is None
    assert [bill.parent.span_id, receipt.parent.span_id] == [create.context.span_id, bill.context.span_id]
    assert {span.context.trace_id for span in (create, bill, receipt)} == {create.context.trace_id}
    assert [link.context.span_id for link in spans[f"poll {invoices}"].links] == [bill.context.span_id]


@pytest.mark.torture
def test_memory_of_traced_clients_stays_flat(
    address: str, topic: str, pytestconfig: pytest.Config, record_property: pytest.RecordProperty
) -> None:
    """Resident memory after the first records: buffers are filled and modules imported by then."""
    records = LONG if is_long(pytestconfig) else SHORT
    command = [sys.executable, "-m", traced_clients.__name__, address, topic, str(records)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    resident = json.loads(ran.stdout)
    record_property("summary", f"{records} records: {[round(each / 2**20, 1) for each in resident]} MiB")
    assert max(resident) - resident[WARM_UP_MARKS - 1] < GROWTH_BYTES
