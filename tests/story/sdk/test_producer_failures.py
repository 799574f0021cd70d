"""Lost connections, dead brokers, deadlines, and what happens to failures that no user awaits; in virtual time."""

import asyncio
import gc

import pytest
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk.interceptors import ProducerInterceptor, SealedBatch
from kafkalite_sdk.producer.reports import FailedRecords

from kafkalite.errors import (
    ClientUseError,
    KafkaConnectionError,
    KafkaErrorCode,
    KafkaTimeoutError,
    error_class,
)
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.producer_rig import new_producer, numbers, producing, values

InvalidRecord = error_class(KafkaErrorCode.INVALID_RECORD)


@story(nodes=2)
async def test_lost_responses_neither_lose_nor_duplicate_records(world: Story) -> None:
    topic = world.broker.cluster.create_topic("orders")
    async with producing(world, batch_size=200, linger_ms=0) as producer:
        await producer.send("orders", b"first")
        world.broker.on(ProduceRequest, skip=1, disconnect=True, applied=True)
        world.broker.on(ProduceRequest, skip=4, disconnect_after_bytes=7, applied=True)
        sent = [producer.send("orders", value) for value in numbers(100)]
        metadata = await asyncio.gather(*sent)
        assert [each.offset for each in metadata] == list(range(1, 101))
        assert values(world) == [b"first", *numbers(100)]
        assert topic.partitions[0].duplicates >= 1
        assert producer.metrics().batches_retried > 0


@story(nodes=2)
async def test_every_retriable_error_is_retried_in_order(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    codes = [code for code in KafkaErrorCode if code.retriable]
    async with producing(world, linger_ms=0, retry_backoff_ms=1) as producer:
        for number, code in enumerate(codes):
            world.broker.on(ProduceRequest, error=code)
            assert (await producer.send("orders", b"%d" % number)).offset == number, code.name
    assert values(world) == numbers(len(codes))


@story(nodes=2)
async def test_lost_sequences_lead_to_a_new_epoch_without_losing_records(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, batch_size=100, linger_ms=0) as producer:
        await producer.send("orders", b"first")
        codes = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID")
        for count, code in enumerate(codes, 1):
            world.broker.on(ProduceRequest, error=KafkaErrorCode[code])
            await asyncio.gather(*(producer.send("orders", code.encode()) for _ in range(6)))
            assert producer.metrics().producer_epoch == count
    assert values(world) == [b"first", *(code.encode() for code in codes for _ in range(6))]


@story()
async def test_an_awaited_failure_is_raised_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD)
    failed: list[FailedRecords] = []
    async with producing(world, on_error=failed.append) as producer:
        with pytest.raises(InvalidRecord):
            await producer.send("orders", b"v")
        await producer.flush()
        await producer.drain()
    assert not failed


@story()
async def test_a_failure_that_is_not_awaited_is_raised_by_the_next_call(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    for call in ("drain", "flush", "close"):
        world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD)
        failed: list[FailedRecords] = []
        producer = new_producer(world, on_error=failed.append)
        await producer.start()
        for _ in range(3):
            producer.send("orders", b"v")
        await pass_time(1)
        ((error, count),) = [(each.error, each.unobserved) for each in failed]
        assert isinstance(error, InvalidRecord) and count == 3
        with pytest.raises(InvalidRecord) as raised:
            await getattr(producer, call)()
        assert raised.value.__notes__ == ["raised for 3 record(s) whose awaitables were not awaited"]
        await producer.close()
        assert len(failed) == 1


@story()
async def test_the_exit_of_the_context_raises_failures_unless_another_error_leaves_it(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD, times=None)
    with pytest.raises(InvalidRecord):
        async with producing(world) as producer:
            producer.send("orders", b"v")
    with pytest.raises(KeyError, match="of the user"):
        async with producing(world) as producer:
            producer.send("orders", b"v")
            raise KeyError("of the user")


class Recorder(ProducerInterceptor):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.raises = False

    def request_sent(self, node: int, batches: int, size: int) -> None:
        self.calls.append(f"sent {batches}")
        assert size > 61
        if self.raises:
            raise ZeroDivisionError

    def request_ended(self, node: int, seconds: float, error: BaseException | None) -> None:
        self.calls.append(f"ended {type(error).__name__}")
        assert seconds > 0

    def on_acknowledgement(self, batch: SealedBatch) -> None:
        self.calls.append(f"batch {batch.topic}-{batch.partition} {batch.records_count} {type(batch.error).__name__}")


@story()
async def test_interceptors_of_requests_are_called_and_their_exceptions_reach_the_loop(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    recorder = Recorder()
    async with producing(world, interceptors=[recorder], linger_ms=0) as producer:
        world.broker.on(ProduceRequest, disconnect=True)
        world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD)
        await outcome(producer.send("orders", b"v"))
        await pass_time(0.1)
        assert recorder.calls == [
            "sent 1",
            "ended KafkaConnectionError",
            "sent 1",
            "batch orders-0 1 InvalidRecordError",
            "ended NoneType",
        ]
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
        recorder.raises = True
        await producer.send("orders", b"v")
        assert [type(error) for error in reported] == [ZeroDivisionError]


@story()
async def test_close_returns_in_time_although_the_broker_is_dead(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    producer = new_producer(world)
    await producer.start()
    await producer.send("orders", b"first")
    world.broker.nodes[1].freeze()
    sent = [producer.send("orders", value) for value in numbers(10)]
    await pass_time(0.1)
    sent += [producer.send("orders", value) for value in numbers(10)]
    sent += [producer.send("unknown", value) for value in numbers(10)]
    began = world.now
    with pytest.raises(KafkaTimeoutError, match="not acknowledged within 2 s, the timeout of close"):
        await producer.close(timeout=2)
    assert world.now - began < 2.1
    for future in sent:
        assert isinstance(future.exception(), KafkaTimeoutError)
    world.broker.nodes[1].thaw()


@story()
async def test_close_delivers_everything_and_later_calls_are_refused(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    producer = new_producer(world, linger_ms=60_000)
    await producer.start()
    send = producer.send
    sent = [send("orders", value) for value in numbers(10)]
    closing = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    with pytest.raises(ClientUseError, match="closed"):
        send("orders", b"too late")
    await closing
    assert [future.result().offset for future in sent] == list(range(10))
    await producer.close()
    for call in (lambda: send("orders", b"v"), lambda: producer.send("orders", b"v"), producer.drain):
        with pytest.raises(ClientUseError, match="was closed; create another one"):
            call()
    for awaitable in (producer.flush(), producer.send_many([]), producer.start()):
        with pytest.raises(ClientUseError, match="was closed; create another one"):
            await awaitable


@story()
async def test_a_cancelled_close_fails_the_records_and_leaves_nothing(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    producer = new_producer(world)
    await producer.start()
    await producer.send("orders", b"first")
    world.broker.nodes[1].freeze()
    future = producer.send("orders", b"v")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 1)
    assert isinstance(future.exception(), KafkaTimeoutError)
    world.broker.nodes[1].thaw()


@story()
async def test_records_fail_at_their_deadline_while_the_broker_is_dead(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, delivery_timeout_ms=5000, request_timeout_ms=2000) as producer:
        await producer.send("orders", b"first")
        world.broker.nodes[1].stop()
        began = world.now
        with pytest.raises(KafkaTimeoutError, match=r"orders-0: not acknowledged in 5 s: cannot connect to .*refused"):
            await producer.send("orders", b"v")
        assert 5 <= world.now - began < 5.01
        await world.broker.nodes[1].start()
        assert (await producer.send("orders", b"later")).offset == 1


@story()
async def test_records_of_an_open_request_fail_at_their_deadline_and_later_ones_follow_without_a_gap(
    world: Story,
) -> None:
    world.broker.cluster.create_topic("orders")
    times = {"delivery_timeout_ms": 5000, "request_timeout_ms": 4000, "linger_ms": 0}
    async with producing(world, **times, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as producer:
        await producer.send("orders", b"first")
        world.broker.on(ProduceRequest, error=KafkaErrorCode.NOT_ENOUGH_REPLICAS)
        rule = world.broker.on(ProduceRequest, stall=True)
        began = world.now
        with pytest.raises(KafkaTimeoutError, match="orders-0: not acknowledged in 5 s: NOT_ENOUGH_REPLICAS"):
            await producer.send("orders", b"late")
        assert 5 <= world.now - began < 5.01
        await producer.flush()
        later = producer.send("orders", b"later")
        rule.release()
        assert (await later).offset == 2
        assert values(world) == [b"first", b"late", b"later"]
        assert producer.metrics().producer_epoch == 0


@story()
async def test_a_record_without_metadata_names_the_cause(world: Story) -> None:
    async with producing(world, max_block_ms=3000) as producer:
        world.broker.nodes[1].stop()
        with pytest.raises(KafkaTimeoutError, match=r"orders: no metadata within 3 s; .*cannot connect to .*refused"):
            await producer.send("orders", b"v")


@story()
async def test_a_start_without_a_broker_fails_and_can_be_repeated(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.nodes[1].stop()
    producer = new_producer(world)
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    with pytest.raises(ClientUseError, match="not started"):
        producer.send("orders", b"v")
    await world.broker.nodes[1].start()
    await producer.start()
    assert (await producer.send("orders", b"v")).offset == 0
    await producer.close()


@story()
async def test_an_identity_is_requested_again_after_errors_that_may_pass(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(InitProducerIdRequest, error=KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
    async with producing(world) as producer:
        assert (await producer.send("orders", b"v")).offset == 0
    assert len(world.broker.requests(InitProducerIdRequest)) == 4


@story()
async def test_a_producer_without_authorization_fails_all_records_at_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(InitProducerIdRequest, error=KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
    denied = error_class(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    async with producing(world) as producer:
        with pytest.raises(denied):
            await producer.send("orders", b"v")
        with pytest.raises(denied):
            producer.send("orders", b"v")


@story()
async def test_a_batch_that_cannot_be_compressed_fails_and_later_ones_are_sent(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, compression_type="lz4", linger_ms=0) as producer:
        await producer.send("orders", b"first")
        from kafkalite._speedups.records.validator import use_codecs
        from kafkalite.records import compression

        def broken(*_: object) -> bytes:
            raise MemoryError

        use_codecs(broken, compression.decompress, compression.decompress_appended)
        try:
            with pytest.raises(MemoryError):
                await producer.send("orders", b"rejected")
        finally:
            use_codecs(compression.compress, compression.decompress, compression.decompress_appended)
        assert (await producer.send("orders", b"v")).offset == 1


def batches_alive() -> dict[int, ProducerBatch]:
    return {id(each): each for each in gc.get_objects() if isinstance(each, ProducerBatch)}


@story(nodes=2)
async def test_nothing_keeps_the_records_of_a_closed_producer_alive(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    before = batches_alive()
    async with producing(world) as producer:
        world.broker.on(ProduceRequest, error=KafkaErrorCode.MESSAGE_TOO_LARGE, times=3)
        await asyncio.gather(*(producer.send("orders", bytes(1000)) for _ in range(100)))
        world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD)
        await asyncio.gather(*(producer.send("orders", b"v") for _ in range(9)), return_exceptions=True)
    del producer
    gc.collect()
    assert batches_alive().keys() <= before.keys()
