"""An unexpected exception inside a client ends it with an error; nothing waits for ever."""

import asyncio

import pytest
from kafkalite_sdk.columns.range_reader import RangeReader

from kafkalite.errors import ClientFailedError
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.server import batch, produce_request
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, append, consuming, new_consumer, values
from tests.story.sdk.producer_rig import new_producer
from tests.story.sdk.test_column_reader import fill, offsets, reading
from tests.story.sdk.test_consumer_large_batches import append_large


def fault(*_args: object, **_named: object) -> None:
    raise ZeroDivisionError("a bug")


PARTS = {
    "step": lambda producer: (producer._driver.sender, "requests"),
    "response": lambda producer: (producer._driver.sender, "answered"),
    "deadlines": lambda producer: (producer._driver.sender, "wake_at"),
    "metadata": lambda producer: (producer._client, "_request_metadata"),
    "metadata-response": lambda producer: (producer._client.view, "update"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_producer_with_a_failed_timer_or_callback_fails_its_records_and_later_calls(name: str, monkeypatch) -> None:
    @story(nodes=2)
    async def run(world: Story) -> None:
        world.expect_failures()
        world.broker.cluster.create_topic("orders")
        producer = new_producer(world, metadata_max_age_ms=2000)
        await producer.start()
        await producer.send("orders", b"first")
        part, method = PARTS[name](producer)
        if name == "metadata":
            alarm = producer._client._running.alarm
            monkeypatch.setattr(alarm, "_ring", fault, raising=False)
        else:
            monkeypatch.setattr(part, method, fault)
        rule = world.broker.on(ProduceRequest, stall=name.startswith("metadata"))
        sends = [producer.send("orders", b"%d" % number) for number in range(3)]
        flushing = asyncio.ensure_future(producer.flush())
        await pass_time(5.0)
        assert all(isinstance(each.exception(), ClientFailedError) for each in sends)
        assert isinstance(await outcome(flushing), ClientFailedError)
        for use in (lambda: producer.send("orders", b"v"), lambda: producer.drain()):
            with pytest.raises(ClientFailedError, match=r"ZeroDivisionError.*close it and create another"):
                use()
        assert isinstance(await outcome(producer.flush()), ClientFailedError)
        rule.release()
        await producer.close()

    run()


@pytest.mark.parametrize("part", ["work", "response", "heartbeat"])
def test_a_consumer_with_a_failed_timer_or_callback_raises_at_the_next_call(part: str, monkeypatch) -> None:
    @story()
    async def run(world: Story) -> None:
        world.expect_failures()
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0")
        consumer = new_consumer(world, group="g", group_protocol="classic")
        await consumer.start()
        consumer.subscribe("orders")
        await values(consumer, 1)
        driver = consumer._driver
        polling = asyncio.ensure_future(consumer.poll(60.0)) if part == "response" else None
        if part == "response":
            await world.broker.received(FetchRequest)
            monkeypatch.setattr(driver.fetcher, "answered", fault)
            append(world, A, b"1")
        elif part == "heartbeat":
            monkeypatch.setattr(driver.group.membership, "requests", fault)
        else:
            monkeypatch.setattr(driver.resolver, "advance", fault)
        await pass_time(10.0)
        if polling is not None:
            assert isinstance(await outcome(polling), ClientFailedError)
        for call in (consumer.poll(1.0), consumer.commit(), consumer.position(A)):
            error = await outcome(call)
            assert isinstance(error, ClientFailedError) and isinstance(error.__cause__, ZeroDivisionError)
        await consumer.close()

    run()


def test_a_consumer_whose_decompressed_batch_cannot_be_applied_raises(monkeypatch) -> None:
    @story()
    async def run(world: Story) -> None:
        world.expect_failures()
        append_large(world, 1)
        async with consuming(world, A) as consumer:
            monkeypatch.setattr(consumer._driver.fetcher, "decompressed", fault)
            assert await values(consumer, 1) == [b"small-0"]
            error = await outcome(consumer.poll(60.0))
            assert isinstance(error, ClientFailedError) and isinstance(error.__cause__, ZeroDivisionError)

    run()


@pytest.mark.parametrize("method", ["_answered", "_metadata_changed"])
def test_a_reader_of_columns_with_a_failed_callback_ends_its_reads(method: str, monkeypatch) -> None:
    @story(nodes=2)
    async def run(world: Story) -> None:
        world.expect_failures()
        fill(world, 4)
        monkeypatch.setattr(RangeReader, method, fault)
        async with reading(world, metadata_max_age_ms=2000) as reader:
            for _ in range(2):
                error = await outcome(offsets(reader, 0, 100, timeout=60))
                assert isinstance(error, ClientFailedError) and isinstance(error.__cause__, ZeroDivisionError)

    run()


@pytest.mark.parametrize("name", ["response", "timeout", "loss", "written", "unconnected"])
def test_a_failed_callback_of_a_connection_fails_the_client(name: str) -> None:
    @story(nodes=2)
    async def run(world: Story) -> None:
        world.expect_failures()
        world.broker.cluster.create_topic("orders")
        async with world.client("node1:9092") as client:
            if name == "unconnected":
                world.network.refuse("node2", 9092)
            else:
                await client.call(2, MetadataRequest(topics=[]))
            if name == "timeout":
                world.broker.nodes[2].freeze()
            request = MetadataRequest(topics=[])
            if name == "written":
                request = produce_request("orders", (0, batch(b"a")), acks=0)
            options = {"version_max": 12, "one_way": True} if name == "written" else {}
            client.submit(2, request, fault, fault, timeout_s=1.0, **options)
            if name == "loss":
                world.broker.nodes[2].disconnect()
            await pass_time(2.0)
            with pytest.raises(ClientFailedError, match="ZeroDivisionError"):
                client.check_owner()

    run()
