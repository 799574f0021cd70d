"""Misuse of a producer raises at once, with the next step; on a real broker and real event loops."""

import asyncio
import os
import threading

import pytest
import uvloop
from kafkalite_sdk.producer.producer import Producer

from kafkalite.errors import ClientUseError, KafkaErrorCode, error_class
from kafkalite.testing.thread import BrokerThread

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TooLarge = error_class(KafkaErrorCode.MESSAGE_TOO_LARGE)


@pytest.fixture(scope="module")
def address():
    with BrokerThread() as broker:
        yield broker.address


@pytest.fixture(params=LOOPS)
def run(request):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


def error_of(call):
    """The text of the ClientUseError that a call raises."""
    with pytest.raises(ClientUseError) as raised:
        call()
    return str(raised.value)


def calls_of(producer):
    return [lambda: producer.send("orders", b"v"), producer.drain]


def test_calls_before_the_start_name_the_start(run, address):
    async def main():
        producer = Producer(address)
        for call in calls_of(producer):
            assert "not started" in error_of(call)
        with pytest.raises(ClientUseError, match="not started"):
            await producer.flush()
        with pytest.raises(ClientUseError, match="not started"):
            producer.metrics()
        await producer.close()

    run(main())


def test_two_starts_are_rejected(run, address):
    async def main():
        async with Producer(address) as producer:
            with pytest.raises(ClientUseError, match="is started"):
                await producer.start()
            assert (await producer.send("orders", b"v")).offset >= 0

    run(main())


def test_another_thread_is_rejected(run, address):
    async def main():
        async with Producer(address) as producer:
            await producer.send("orders", b"v")
            texts = []
            thread = threading.Thread(target=lambda: texts.extend(error_of(call) for call in calls_of(producer)))
            thread.start()
            thread.join()
            assert len(texts) == 2 and all("another thread" in text for text in texts)
            assert producer.metrics().buffered_bytes == 0

    run(main())


def test_another_event_loop_of_the_thread_is_rejected(run, address):
    async def use(producer):
        for call in calls_of(producer)[:1]:
            assert "another event loop" in error_of(call)
        with pytest.raises(ClientUseError, match="another event loop"):
            await producer.flush()

    producer = Producer(address)

    async def start():
        await producer.start()
        await producer.send("orders", b"v")

    run(start())
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(use(producer))
    finally:
        loop.close()
    run(producer.close())


def test_another_loop_cannot_add_to_an_open_batch(run, address):
    producer = Producer(address, linger_ms=60_000)

    async def start():
        await producer.start()
        producer.send("orders", b"v")
        await producer.flush()
        producer.send("orders", b"lingers")

    async def elsewhere():
        return [error_of(call) for call in calls_of(producer)]

    run(start())
    buffered = producer.metrics().buffered_bytes
    assert buffered
    loop = asyncio.new_event_loop()
    try:
        for text in loop.run_until_complete(elsewhere()):
            assert text.endswith("belongs to another event loop; create one in each loop, and close it in its loop")
    finally:
        loop.close()
    for call in calls_of(producer):
        assert "is used outside of its event loop; call it in a coroutine" in error_of(call)
    assert producer.metrics().buffered_bytes == buffered

    async def again():  # another run of the same loop
        producer.send("orders", b"w")
        await producer.close()

    run(again())


def test_a_forked_process_is_rejected(address):
    async def main():
        async with Producer(address) as producer:
            await producer.send("orders", b"v")
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if all("fork" in error_of(call) for call in calls_of(producer)) else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert (await producer.send("orders", b"v")).offset >= 0

    asyncio.run(main())


def test_texts_without_a_serializer_and_large_records_raise_at_once(run, address):
    async def main():
        async with Producer(address, max_request_size=5000, batch_size=1000) as producer:
            for arguments in (("orders", "text"), ("orders", b"v", "key"), (None, b"v")):
                with pytest.raises(TypeError):
                    producer.send(*arguments)
            for _ in range(2):  # before and after the metadata
                with pytest.raises(TooLarge, match="max_request_size"):
                    producer.send("orders", bytes(5000))
                await producer.send("orders", bytes(4000))
            assert producer.metrics().buffered_bytes == 0

    run(main())


def test_headers_that_are_not_pairs_of_a_name_and_bytes_raise_at_once(run, address):
    async def main():
        async with Producer(address) as producer:
            with pytest.raises(TypeError, match="values of headers are bytes or None, not str"):
                producer.send("orders", b"v", headers=[("source", "shop")])
            with pytest.raises(TypeError, match=r"pass list\(headers.items\(\)\)"):
                producer.send("orders", b"v", headers={"source": b"shop"})

    run(main())


@pytest.mark.parametrize(
    ("timeout", "error"), [("1", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_timeouts_of_flush_and_close_are_numbers_of_seconds(run, address, timeout, error):
    async def main():
        async with Producer(address) as producer:
            for wait in (producer.flush, producer.close):
                with pytest.raises(error, match=r"timeout is .*, expected .* seconds"):
                    await wait(timeout)
            assert (await producer.send("orders", b"still open")).offset >= 0

    run(main())


@pytest.mark.parametrize("record", ["a", b"a", ["orders", b"v"], {"topic": "orders"}])
def test_send_many_rejects_objects_that_are_not_records(run, address, record):
    async def main():
        async with Producer(address) as producer:
            with pytest.raises(TypeError, match="is not a record; pass ProducerRecord"):
                await producer.send_many([record])
            assert await producer.send_many([]) == []

    run(main())


def test_transactions_need_a_transactional_id(run, address):
    async def main():
        async with Producer(address) as producer:
            assert 'create it with transactional_id="name"' in error_of(producer.transaction)
            for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(ClientUseError, match="transactional_id"):
                    await call()
            with pytest.raises(ClientUseError, match="transactional_id"):
                await producer.send_offsets({}, "group")

    with pytest.raises(ValueError, match="a producer with a handler has no transactions"):
        Producer(address, transactional_id="t", handler=print)
    run(main())
