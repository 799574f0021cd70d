"""The stages of a producer in virtual time, and handlers that receive batches instead of the network."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from kafkalite_sdk.interceptors import ProducerInterceptor, SealedBatch
from kafkalite_sdk.producer.producer import Producer
from kafkalite_sdk.values import ProducerRecord

from kafkalite.errors import KafkaConnectionError, KafkaError, KafkaErrorCode, KafkaTimeoutError, error_class, error_for
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.producer_rig import numbers, producing, values

InvalidRecord = error_class(KafkaErrorCode.INVALID_RECORD)
UnknownServerError = error_class(KafkaErrorCode.UNKNOWN_SERVER_ERROR)


class Journal(ProducerInterceptor):
    """Notes each stage; raises in those that are named."""

    def __init__(self, **failing: type[Exception]) -> None:
        self.calls: list[str] = []
        self.batches: list[SealedBatch] = []
        self.failing = failing
        self.last: list[ProducerRecord[Any, Any]] = []

    def _called(self, stage: str, text: object) -> None:
        self.calls.append(f"{stage} {text}")
        if stage in self.failing:
            raise self.failing[stage](stage)

    def before_enqueue(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        self._called("before_enqueue", record.value)
        return record._replace(headers=[("seen", b"yes")])

    def after_enqueue(self, record: ProducerRecord[Any, Any], future: Any) -> None:
        self._called("after_enqueue", f"{record.value} {future.done()}")

    def before_send(self, batch: SealedBatch) -> None:
        self._called("before_send", [record.value for record in batch.records()])

    def on_acknowledgement(self, batch: SealedBatch) -> None:
        self.batches.append(batch)
        self._called("on_acknowledgement", f"{batch.base_offset} {type(batch.error).__name__}")

    def last_batch(self) -> list[ProducerRecord[Any, Any]]:
        self._called("last_batch", "")
        return self.last


def reported() -> list[BaseException]:
    """The exceptions that reach the exception handler of the loop from now on."""
    found: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: found.append(context["exception"]))
    return found


@story()
async def test_stages_are_called_in_order(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    journal = Journal()
    journal.last = [ProducerRecord("orders", b"last")]
    async with producing(world, interceptors=[journal]) as producer:
        sent = [producer.send("orders", value) for value in numbers(2)]
        assert [each.offset for each in await asyncio.gather(*sent)] == [0, 1]
        await pass_time(0.1)
        assert journal.calls == [
            "before_enqueue b'0'",
            "after_enqueue b'0' False",
            "before_enqueue b'1'",
            "after_enqueue b'1' False",
            "before_send [b'0', b'1']",
            "on_acknowledgement 0 NoneType",
        ]
    assert journal.calls[6:9] == ["last_batch ", "before_enqueue b'last'", "after_enqueue b'last' False"]
    assert values(world) == [b"0", b"1", b"last"]
    log = world.broker.cluster.topics["orders"].partitions[0]
    assert log.values()[-1] == b"last"


@story()
async def test_interceptors_see_what_users_send_and_may_change_it(world: Story) -> None:
    """Before the serializers, and for each record of send_many."""
    world.broker.cluster.create_topic("orders")

    class Doubled(ProducerInterceptor):
        def before_enqueue(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            return record._replace(value=record.value * 2)

    async with producing(world, interceptors=[Doubled()], value_serializer=lambda n: b"%d" % n) as producer:
        await producer.send("orders", 21)
        await producer.send_many([ProducerRecord("orders", 4)])
    assert values(world) == [b"42", b"8"]


@story()
async def test_exception_before_enqueue_fails_its_record_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    journal = Journal(before_enqueue=KeyError)
    async with producing(world, interceptors=[journal]) as producer:
        with pytest.raises(KeyError, match="before_enqueue") as caught:
            producer.send("orders", b"v")
        assert "Journal.before_enqueue" in caught.value.__notes__[0]
        (failed,) = await producer.send_many([ProducerRecord("orders", b"v")])
        assert isinstance(failed, KeyError)
        journal.failing.clear()
        await producer.send("orders", b"w")
    assert values(world) == [b"w"]


@story()
async def test_exception_before_send_fails_its_batch_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    journal = Journal(before_send=KeyError)
    async with producing(world, interceptors=[journal]) as producer:
        sent = [producer.send("orders", value, partition=0) for value in numbers(2)]
        assert [type(await outcome(each)) for each in sent] == [KeyError, KeyError]
        await pass_time(0.1)
        assert [(type(each.error), each.records_count) for each in journal.batches] == [(KeyError, 2)]
        journal.failing.clear()
        assert (await producer.send("orders", b"w", partition=0)).offset == 0
    assert values(world) == [b"w"]


@story()
async def test_exceptions_of_other_stages_change_no_record(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    errors = reported()
    for stage in ("after_enqueue", "on_acknowledgement", "last_batch"):
        async with producing(world, interceptors=[Journal(**{stage: KeyError})]) as producer:
            assert (await producer.send("orders", stage.encode())).offset >= 0
        assert [str(each) for each in errors] == [repr(stage)]
        errors.clear()
    assert values(world) == [b"after_enqueue", b"on_acknowledgement", b"last_batch"]


@story()
async def test_batch_that_is_sent_again_passes_each_stage_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    journal = Journal()
    async with producing(world, interceptors=[journal]) as producer:
        world.broker.on(ProduceRequest, disconnect=True)
        world.broker.on(ProduceRequest, error=KafkaErrorCode.NOT_ENOUGH_REPLICAS)
        await producer.send("orders", b"v")
        await pass_time(0.1)
        assert [each.split()[0] for each in journal.calls[2:]] == ["before_send", "on_acknowledgement"]
        assert producer._stages._sealed == {}


@story()
async def test_divided_batch_fails_and_its_halves_are_batches(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    journal = Journal()
    async with producing(world, interceptors=[journal]) as producer:
        world.broker.on(ProduceRequest, error=KafkaErrorCode.MESSAGE_TOO_LARGE)
        sent = [producer.send("orders", value) for value in numbers(4)]
        assert [(await each).offset for each in sent] == [0, 1, 2, 3]
        await pass_time(0.1)
        found = [(each.records_count, each.base_offset, type(each.error).__name__) for each in journal.batches]
        assert found == [(4, -1, "MessageTooLargeError"), (2, 0, "NoneType"), (2, 2, "NoneType")]
        assert producer._stages._sealed == {}


@story()
async def test_records_that_fail_before_they_are_encoded_end_too(world: Story) -> None:
    journal = Journal()
    async with producing(world, interceptors=[journal], max_block_ms=100) as producer:
        assert isinstance(await outcome(producer.send("unknown", b"v")), TimeoutError)
        await pass_time(0.1)
        assert [(each.partition, each.data, type(each.error).__name__) for each in journal.batches] == [
            (-1, b"", "KafkaTimeoutError")
        ]


@story()
async def test_send_without_stages_is_the_method_of_the_accumulator(world: Story) -> None:
    """Interceptors of batches and requests cost nothing in `send`."""

    class Batches(ProducerInterceptor):
        def before_send(self, batch: SealedBatch) -> None:
            assert batch.records_count

    world.broker.cluster.create_topic("orders")
    for interceptors in ((), (Batches(),)):
        async with producing(world, interceptors=interceptors) as producer:
            assert producer.send == producer._driver.accumulator.send
            await producer.send("orders", b"v")


def test_interceptors_of_another_class_are_rejected() -> None:
    with pytest.raises(TypeError, match="subclass of ProducerInterceptor"):
        Producer("a:1", interceptors=[object()])  # type: ignore[list-item]


# ---- handlers ------------------------------------------------------------------------------------------------------


def test_handler_is_a_test_double_in_one_line() -> None:
    async def main() -> None:
        sent: list[SealedBatch] = []
        async with Producer("nowhere:9092", handler=sent.append, handler_partitions=3) as producer:
            metadata = await producer.send("orders", b"value", key=b"key")
            assert (metadata.topic, metadata.offset) == ("orders", 0)
            assert (await producer.send("orders", b"other", key=b"key")).offset == 1
        assert [(each.topic, each.partition, each.records()[0].value) for each in sent] == [
            ("orders", metadata.partition, b"value"),
            ("orders", metadata.partition, b"other"),
        ]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(main)


def test_async_handler_receives_one_batch_at_a_time_in_order() -> None:
    async def main() -> None:
        seen: list[bytes] = []
        busy = False

        async def handle(batch: SealedBatch) -> None:
            nonlocal busy
            assert not busy
            busy = True
            await pass_time(0.5)
            seen.extend(record.value for record in batch.records())
            busy = False

        async with Producer("nowhere:9092", handler=handle, linger_ms=0, compression_type="lz4") as producer:
            for value in numbers(20):
                producer.send("orders", value)
                await pass_time(0.1)
        assert seen == numbers(20)

    run_virtually(main)


def test_exception_of_a_handler_fails_the_records_of_its_batch() -> None:
    async def main() -> None:
        def handle(batch: SealedBatch) -> None:
            if batch.topic == "bad":
                raise ValueError("no space")
            if batch.topic == "worse":
                raise error_for(KafkaErrorCode.INVALID_RECORD, "not this one")
            if batch.topic == "cancelled":
                raise asyncio.CancelledError

        async with Producer("nowhere:9092", handler=handle) as producer:
            sent = [producer.send(topic, b"v") for topic in ("good", "bad", "worse", "cancelled")]
            good, bad, worse, cancelled = [await outcome(each) for each in sent]
            assert good.offset == 0
            assert isinstance(bad, UnknownServerError)
            assert "ValueError('no space')" in str(bad)
            assert isinstance(worse, InvalidRecord)
            assert isinstance(cancelled, UnknownServerError) and "CancelledError" in str(cancelled)
            assert (await producer.send("good", b"v")).offset == 1

    run_virtually(main)


def test_error_of_a_handler_without_a_code_is_retried_or_fails_the_records_as_it_says() -> None:
    async def main() -> None:
        calls = Counter[str]()

        def handle(batch: SealedBatch) -> None:
            calls[batch.topic] += 1
            if batch.topic == "fatal":
                raise KafkaError("no space")
            if calls[batch.topic] < 3:
                raise KafkaConnectionError("the other cluster is down")

        async with Producer("nowhere:9092", handler=handle) as producer:
            assert (await producer.send("retried", b"v")).offset == 0
            failed = await outcome(producer.send("fatal", b"v"))
        assert isinstance(failed, UnknownServerError) and "no space" in str(failed)
        assert calls == {"retried": 3, "fatal": 1}

    run_virtually(main)


def test_close_cancels_a_handler_that_does_not_return() -> None:
    async def main() -> None:
        async def handle(_: SealedBatch) -> None:
            await asyncio.get_running_loop().create_future()

        producer = Producer("nowhere:9092", handler=handle)
        await producer.start()
        sent = [producer.send("orders", b"v"), producer.send("returns", b"v")]
        with pytest.raises(KafkaTimeoutError):
            await producer.close(timeout=2.0)
        assert all(isinstance(each.exception(), Exception) for each in sent)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(main)


def test_close_waits_a_limited_time_for_a_handler_that_suppresses_its_cancellation() -> None:
    async def main() -> None:
        ended, handled = asyncio.Event(), []

        async def handle(batch: SealedBatch) -> None:
            handled.append(batch.topic)
            while not ended.is_set():
                try:
                    await ended.wait()
                except asyncio.CancelledError:
                    continue

        producer = Producer("nowhere:9092", handler=handle)
        await producer.start()
        sent = [producer.send("orders", b"v"), producer.send("returns", b"v")]
        async with asyncio.timeout(10.0):
            with pytest.raises(KafkaTimeoutError):
                await producer.close(timeout=2.0)
        assert all(isinstance(each.exception(), Exception) for each in sent)
        ended.set()
        await pass_time(1.0)
        assert handled == ["orders"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(main)


def test_a_batch_that_is_handled_during_close_is_the_last_one() -> None:
    async def main() -> None:
        handled = []

        async def handle(batch: SealedBatch) -> None:
            handled.append(batch.topic)
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()

        producer = Producer("nowhere:9092", handler=handle)
        await producer.start()
        sent = producer.send("orders", b"v")
        producer.send("returns", b"v")
        with pytest.raises(UnknownServerError, match="returns-0: the producer was closed"):
            await producer.close(timeout=2.0)
        assert sent.result().offset == 0
        assert handled == ["orders"]

    run_virtually(main)
