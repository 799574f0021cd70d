"""`close` of the blocking clients and of aiokafka's interface, by several threads, tasks and signals; a real broker."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from kafkalite_sdk import blocking
from kafkalite_sdk.compat import aiokafka
from kafkalite_sdk.compat.aiokafka.admin import AIOKafkaAdminClient

from kafkalite.errors import ClientUseError
from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.story.sdk.blocking_rig import new_topic, run_program

FACADES: dict[str, Callable[..., Any]] = {
    name: getattr(blocking, name) for name in ("Producer", "Consumer", "ColumnReader", "Admin", "Connection")
}
AIOKAFKA: dict[str, Callable[..., Any]] = {
    "producer": aiokafka.AIOKafkaProducer,
    "consumer": aiokafka.AIOKafkaConsumer,
    "admin": AIOKafkaAdminClient,
}
THREADS = 4


@contextmanager
def silent_server() -> Iterator[tuple[str, Callable[[], object]]]:
    """The address of a server that does not answer, and a function that waits for a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as accepted:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        yield address, lambda: accepted.enter_context(server.accept()[0])


def in_threads(function: Callable[[], object], count: int = THREADS) -> list[threading.Thread]:
    """Call a function in several threads at the same time."""
    together = threading.Barrier(count)

    def run() -> None:
        together.wait()
        function()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    return threads


class Held:
    """A handler of batches that waits until it is released."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.called = threading.Event()
        self._gate = asyncio.Event()

    async def __call__(self, batch: Any) -> None:
        self.called.set()
        await self._gate.wait()
        self.values.append(batch.records_count)

    def release(self, producer: blocking.Producer) -> None:
        producer._thread().call_soon(self._gate.set)


# Blocking clients


@pytest.mark.parametrize("name", FACADES)
def test_threads_close_a_blocking_client(kafkalite_broker: BrokerThread, name: str) -> None:
    before = threading.enumerate()  # an earlier test may have a client of its own
    unused = FACADES[name](kafkalite_broker.address)
    for each in in_threads(unused.close):
        each.join()
    with pytest.raises(ClientUseError, match="was closed"):
        unused.start()
    client = FACADES[name](kafkalite_broker.address)
    client.start()
    for each in in_threads(client.close):
        each.join()
    client.close()
    left = [each for each in threading.enumerate() if each not in before]
    assert [each for each in left if each.name == f"kafkalite-{name.lower()}"] == []
    with pytest.raises(ClientUseError, match="was closed"):
        client.start()


@pytest.mark.parametrize("name", FACADES)
def test_a_blocking_client_is_closed_during_its_start(name: str) -> None:
    with silent_server() as (address, connected):
        client = FACADES[name](address)
        errors: list[BaseException] = []

        def start() -> None:
            with pytest.raises(ClientUseError, match="was closed") as raised:
                client.start()
            errors.append(raised.value)

        starting = threading.Thread(target=start)
        starting.start()
        connected()
        for each in [*in_threads(client.close), starting]:
            each.join()
        assert len(errors) == 1


def test_a_second_thread_that_closes_a_producer_waits_for_the_records() -> None:
    held = Held()
    producer = blocking.Producer("nowhere:9092", handler=held)
    producer.start()
    sent = [producer.send("orders", b"kept") for _ in range(100)]
    closing = in_threads(producer.close)
    held.called.wait()
    assert all(each.is_alive() for each in closing)
    held.release(producer)
    for each in closing:
        each.join()
    assert sum(held.values) == 100 and [each.result(0).offset for each in sent] == list(range(100))


@pytest.mark.parametrize("group", [None, "closing"])
def test_threads_that_close_end_a_poll_and_an_iteration(kafkalite_broker: BrokerThread, group: str | None) -> None:
    topic = new_topic(kafkalite_broker, records=3)

    def reader() -> blocking.Consumer:
        consumer = blocking.Consumer(
            kafkalite_broker.address, group=group and f"{group}-{topic}", auto_offset_reset="earliest"
        )
        if group is None:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
        else:
            consumer.subscribe(topic)
        consumer.start()
        return consumer

    consumer, closing = reader(), []
    found = []
    for record in consumer:
        found.append(record.offset)
        if record.offset == 2:
            closing += in_threads(consumer.close)
    assert found == [0, 1, 2]
    consumer = reader()
    closing += in_threads(consumer.close)
    with pytest.raises(ClientUseError, match="was closed"):
        while True:
            consumer.poll(60.0)
    for each in closing:
        each.join()


# aiokafka's interface


def options(name: str, address: str, topic: str) -> Any:
    if name != "consumer":
        return AIOKAFKA[name](bootstrap_servers=address)
    return AIOKAFKA[name](topic, bootstrap_servers=address, group_id=f"g-{topic}", auto_offset_reset="earliest")


def stop(client: Any) -> Any:
    return client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop()


@pytest.mark.parametrize("name", AIOKAFKA)
async def test_tasks_stop_a_client_of_aiokafka(kafkalite_broker: BrokerThread, name: str) -> None:
    topic = new_topic(kafkalite_broker, records=1)
    unused = options(name, kafkalite_broker.address, topic)
    await asyncio.gather(stop(unused), stop(unused))
    client = options(name, kafkalite_broker.address, topic)
    await client.start()
    await asyncio.gather(*(stop(client) for _ in range(3)))
    await stop(client)


@pytest.mark.parametrize("name", AIOKAFKA)
async def test_a_client_of_aiokafka_is_stopped_during_its_start(name: str) -> None:
    with silent_server() as (address, connected):
        client = options(name, address, "orders")
        starting = asyncio.create_task(client.start())
        await asyncio.to_thread(connected)
        await asyncio.gather(stop(client), stop(client))
        with pytest.raises(ClientUseError, match="was closed"):
            await starting


async def test_a_cancelled_stop_of_aiokafka_leaves_the_other_one(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kafkalite_broker.address, linger_ms=300)
    await producer.start()
    sent = await producer.send(topic, b"kept")
    first, second = asyncio.create_task(producer.stop()), asyncio.create_task(producer.stop())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled() or first.done()
    assert (await sent).offset == 0


@pytest.mark.parametrize("use", ["getone", "getmany", "iteration"])
async def test_stop_ends_the_calls_of_aiokafka(kafkalite_broker: BrokerThread, use: str) -> None:
    topic = new_topic(kafkalite_broker, records=1)
    consumer = options("consumer", kafkalite_broker.address, topic)
    await consumer.start()
    assert (await consumer.getone()).value == b"0"

    async def iterate() -> list[object]:
        return [each async for each in consumer]

    calls = {"getone": consumer.getone, "getmany": lambda: consumer.getmany(timeout_ms=60_000), "iteration": iterate}
    using = asyncio.create_task(calls[use]())  # type: ignore[operator]
    while not consumer._consumer._loop.busy:
        await asyncio.sleep(0)
    await asyncio.gather(consumer.stop(), consumer.stop())
    if use == "getone":
        with pytest.raises(aiokafka.errors.ConsumerStoppedError):
            await using
    else:
        assert not await using
    async with options("consumer", kafkalite_broker.address, topic) as again:
        assert await again.committed(aiokafka.TopicPartition(topic, 0)) == 1


# Signals

SIGNALLED = {
    "asynchronous, two closes": """
        from kafkalite_sdk import Consumer, Producer

        async def main():
            loop = asyncio.get_running_loop()
            closing = []
            async with Producer(address, linger_ms=200) as producer, Consumer(
                address, group=topic, auto_offset_reset="earliest"
            ) as consumer:
                def end():
                    closing.extend(map(loop.create_task, (consumer.close(), producer.close())))
                for each in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(each, end)
                consumer.subscribe(topic)
                async for record in consumer:
                    producer.send(topic + "-copy", record.value)
                    if record.offset == 99:
                        os.kill(os.getpid(), signal.SIGTERM)
                        os.kill(os.getpid(), signal.SIGINT)
            await asyncio.gather(*closing)
            assert len(closing) == 4

        asyncio.run(main())
        """,
    "blocking, a second thread closes": """
        def end(*_):
            for each in (consumer, producer):
                threading.Thread(target=each.close).start()
            sys.exit()

        signal.signal(signal.SIGTERM, end)
        try:
            with blocking.Producer(address, linger_ms=200) as producer, blocking.Consumer(
                address, group=topic, auto_offset_reset="earliest"
            ) as consumer:
                consumer.subscribe(topic)
                for record in consumer:
                    producer.send(topic + "-copy", record.value)
                    if record.offset == 99:
                        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        except SystemExit:
            pass
        """,
}
CHECK = """
with blocking.Consumer(address, group=topic) as check:
    committed = check.committed([first])[first]
    ends = check.end_offsets([TopicPartition(topic + "-copy", 0)])
    print(committed and committed.offset, *ends.values())
"""


@pytest.mark.parametrize("name", SIGNALLED)
def test_a_signal_ends_a_program_that_commits_and_sends_what_it_handled(
    kafkalite_broker: BrokerThread, name: str
) -> None:
    topic = new_topic(kafkalite_broker, records=100)
    kafkalite_broker.create_topic(f"{topic}-copy")
    done = run_program(SIGNALLED[name], kafkalite_broker.address, topic, "-W", "error")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    checked = run_program(CHECK, kafkalite_broker.address, topic)
    assert checked.stdout == "100 100\n", checked


@pytest.mark.parametrize("by_poll", [False, True])
def test_an_interrupted_handler_of_a_blocking_consumer_leaves_out_its_own_record(
    kafkalite_broker: BrokerThread, by_poll: bool
) -> None:
    topic = new_topic(kafkalite_broker, records=100)
    first = TopicPartition(topic, 0)
    with pytest.raises(KeyboardInterrupt), consumer_of(kafkalite_broker, topic) as consumer:
        consumer.subscribe(topic)
        received = consumer.poll(timeout=10, max_records=5) if by_poll else []
        assert len(received) == (5 if by_poll else 0)
        for record in consumer:
            if record.offset == 50:
                raise KeyboardInterrupt
    with consumer_of(kafkalite_broker, topic) as again:
        committed = again.committed([first])[first]
        assert committed is not None and committed.offset == 50


def consumer_of(broker: BrokerThread, topic: str) -> blocking.Consumer[Any, Any]:
    return blocking.Consumer(broker.address, group=topic, auto_offset_reset="earliest")
