"""Blocking clients and their process: Ctrl-C, forks, the exit, development mode. Each program is a real process."""

import subprocess
import sys
import threading
from itertools import count
from types import FrameType

import pytest
from kafkalite_sdk.blocking import Consumer
from kafkalite_sdk.blocking.loop_thread import LoopThread

from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.story.sdk.blocking_rig import new_topic, run_program

RECORDS = 100

INTERRUPTED = {
    "start": """
        import socket
        silent = socket.create_server(("127.0.0.1", 0))
        producer = blocking.Producer(f"127.0.0.1:{silent.getsockname()[1]}")
        interrupted(producer.start)
        silent.close()
        try:
            producer.start()
        except errors.KafkaConnectionError:
            producer.close()
        """,
    "poll": """
        with blocking.Consumer(address) as consumer:
            consumer.assign([first])
            interrupted(lambda: consumer.poll(float("inf")))
            consumer.seek_to_beginning()
            assert consumer.poll(10.0)[0].offset == 0
        """,
    "iteration in a group": """
        with blocking.Consumer(address, group=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic)
            assert next(consumer).offset == 0
            interrupted(lambda: [None for _ in consumer])
            consumer.seek(first, 7)
            assert next(consumer).offset == 7
        """,
    "commit": """
        async def never(*args, **kwargs):
            await asyncio.Event().wait()

        with blocking.Consumer(address, group=topic) as consumer:
            consumer.assign([first])
            commit, consumer._client.commit = consumer._client.commit, never
            interrupted(consumer.commit)
            consumer._client.commit = commit
            consumer.commit({first: 3})
            assert consumer.committed()[first].offset == 3
        """,
    "listener": """
        from kafkalite_sdk import RebalanceListener

        class Waiting(RebalanceListener):
            def on_partitions_assigned(self, partitions):
                if not interrupts:
                    interrupts.append(None)
                    threading.Event().wait()

        interrupts = []
        with blocking.Consumer(address, group=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic, listener=Waiting())
            interrupted(lambda: consumer.poll(float("inf")), "Waiting.on_partitions_assigned")
            while not consumer.poll(10.0):
                pass
        """,
    "result": """
        producer = blocking.Producer("nowhere:9092", handler=hold)
        producer.start()
        sent = producer.send("orders")
        interrupted(sent.result)
        assert not sent.done()
        interrupted(lambda: sent.exception(timeout=100.0))
        interrupted(producer.flush)
        interrupted(producer.close)
        assert isinstance(sent.exception(), errors.KafkaTimeoutError)
        """,
    "full buffer": """
        producer = blocking.Producer("nowhere:9092", handler=hold, buffer_memory=1000)
        producer.start()

        producer.send("orders")
        try:
            producer.flush(timeout=0.1)
        except errors.KafkaTimeoutError:
            pass  # the partitions of the topic are known now

        def send():
            while True:
                producer.send("orders", bytes(100))

        interrupted(send)
        interrupted(producer.drain)
        interrupted(lambda: producer.send_many([("orders", b"value")]))
        interrupted(producer.close)
        """,
    "columns": """
        table = __import__("pyarrow").table({"value": [b"a"]})
        with blocking.Producer("nowhere:9092", handler=hold) as producer:
            sent = producer.send_columns("orders", table)
            interrupted(sent.result)
            interrupted(producer.close)
        with blocking.Consumer(address) as consumer:
            consumer.assign([first])
            interrupted(lambda: consumer.poll_columns(float("inf")))
            consumer.seek_to_beginning()
            assert consumer.poll_columns(10.0).num_rows
        """,
    "requests": """
        from kafkalite.protocol.messages.metadata import MetadataRequest

        with blocking.Connection(address) as connection, blocking.Admin(address) as admin:
            async def never(*args, **kwargs):
                await asyncio.Event().wait()

            wait, connection._client._wait = connection._client._wait, never
            interrupted(lambda: connection.poll(None, MetadataRequest(topics=None)))
            connection._client._wait = wait
            replies = connection.poll(10.0) or connection.poll(10.0, MetadataRequest(topics=None))
            assert replies[0].result().brokers
            run, admin._client.topics._driver.run = admin._client.topics._driver.run, never
            interrupted(admin.topics.list)
            admin._client.topics._driver.run = run
            assert topic in [each.name for each in admin.topics.list()]
        """,
    "exit": """
        import atexit
        producer = blocking.Producer("nowhere:9092", handler=hold)
        producer.start()
        producer.send("orders")
        interrupt("_close_all")
        """,
}


def check(done: subprocess.CompletedProcess[str], printed: str = "done\n") -> None:
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


@pytest.mark.parametrize("wait", INTERRUPTED)
def test_ctrl_c_ends_each_wait_and_the_client_remains_usable(kafkalite_broker: BrokerThread, wait: str) -> None:
    topic = new_topic(kafkalite_broker, records=RECORDS)
    done = run_program(INTERRUPTED[wait] + '\n        print("done")\n', kafkalite_broker.address, topic)
    check(done)
    assert ("KeyboardInterrupt" in done.stderr) == (wait == "exit"), done.stderr


def test_ctrl_c_leaves_the_lock_of_a_client_free() -> None:
    """It arrives before each instruction of a call to the loop: the loop continues."""
    thread, instructions = LoopThread("Client"), 0
    thread.start()

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal instructions
        frame.f_trace_opcodes = True
        if event == "opcode":
            instructions -= 1
            if not instructions:
                raise KeyboardInterrupt
        return trace

    for number in count(1):
        called = threading.Event()
        instructions, interrupted, before = number, False, sys.gettrace()
        sys.settrace(trace)
        try:
            thread._post(called.set)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(before)
        assert thread._post(called.set) and called.wait(5.0), f"the loop waits after {number} instructions"
        if not interrupted:
            break
    assert number > 10
    thread.end()


def test_ctrl_c_loses_no_record(kafkalite_broker: BrokerThread) -> None:
    """SIGINT arrives at any time while records are polled: those that poll has taken are returned by a later one."""
    topic = new_topic(kafkalite_broker, records=20 * RECORDS)
    program = """
        with blocking.Consumer(address, auto_offset_reset="earliest", max_partition_fetch_bytes=2000) as consumer:
            consumer.assign([first])
            stop, seen, interrupts = threading.Event(), [], 0

            def disturb():
                while not stop.wait(0.002):
                    os.kill(os.getpid(), signal.SIGINT)

            armed = []

            def raise_once(*_):
                if armed:
                    armed.clear()
                    raise KeyboardInterrupt

            signal.signal(signal.SIGINT, raise_once)
            threading.Thread(target=disturb).start()
            while len(seen) < 2000 or interrupts < 5:
                try:
                    armed.append(None)
                    consumer._thread().run(consumer._client.fill, 5.0, 10)
                    armed.clear()
                except KeyboardInterrupt:
                    interrupts += 1
                seen += [record.offset for record in consumer._client.take(None)]
            stop.set()
            assert seen == list(range(len(seen))), seen
        print("done")
    """
    check(run_program(program, kafkalite_broker.address, topic))


FORKING = """
        producer = blocking.Producer(address)
        consumer = blocking.Consumer(address, auto_offset_reset="earliest")
        admin = blocking.Admin(address)
        for each in (producer, consumer, admin):
            each.start()
        consumer.assign([first])
        seen = [next(consumer)]
        sent = producer.send(topic, b"before")
        held = blocking.Producer("nowhere:9092", handler=hold)
        held.start()
        open_send = held.send("orders")

        def child():
            def uses():
                yield lambda: producer.send(topic, b"child")
                yield producer.drain
                yield producer.flush
                yield producer.close
                yield open_send.result
                yield open_send.exception
                yield consumer.poll
                yield lambda: next(consumer)
                yield consumer.assignment
                yield admin.topics.list
                yield admin.close

            for use in uses():
                try:
                    use()
                except errors.ClientUseError as error:
                    assert "was started before a fork; create another one in the child process" in str(error), error
                else:
                    raise AssertionError(f"{use} has returned")
            with blocking.Producer(address) as own:
                own.send(topic, b"own").result()

        with blocking.Producer(address) as scoped:
            pid = os.fork()
            if not pid:
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            scoped.send(topic, b"scoped").result()
        pid = os.fork()
        if not pid:
            child()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        import multiprocessing
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        assert not open_send.done()
        interrupted(held.close)
        producer.send(topic, b"after").result()
        assert sent.result().offset >= 0
        while len(seen) < 105:
            seen.append(next(consumer))
        assert [each.offset for each in seen] == list(range(105))
        assert {each.value for each in seen[100:102]} == {b"before", b"scoped"}
        assert [each.value for each in seen[102:]] == [b"own", b"own", b"after"]
        for each in (producer, consumer, admin):
            each.close()
        print("done")
    """


def test_child_of_a_fork_gets_an_error_and_harms_no_parent(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=RECORDS)
    check(run_program(FORKING, kafkalite_broker.address, topic))


def test_script_that_forgets_close_loses_no_record_and_leaves_its_group(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    address = kafkalite_broker.address.replace("127.0.0.1", "localhost")
    program = """
        consumer = blocking.Consumer(address, group=topic)
        consumer.start()
        consumer.subscribe(topic)
        while not consumer.assignment():
            consumer.poll(0.1)
        producer = blocking.Producer(address, compression_type="gzip", batch_size=100_000)
        producer.start()
        for number in range(5000):
            producer.send(topic, b"%d" % number * 100)
        print("done")
        raise SystemExit(3)
    """
    done = run_program(program, address, topic)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 3)
    with Consumer(kafkalite_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read = 0
        while read < 5000:
            read += len(consumer.poll(10.0))
    from kafkalite_sdk.blocking import Admin

    with Admin(kafkalite_broker.address) as admin:
        assert admin.groups.describe(topic)[topic].members == ()


def test_error_at_the_exit_is_logged(kafkalite_broker: BrokerThread) -> None:
    program = """
        def fail(batch):
            raise errors.UnknownServerError("planted")

        producer = blocking.Producer("nowhere:9092", handler=fail)
        producer.start()
        producer.send("orders")
        print("done")
    """
    done = run_program(program, kafkalite_broker.address, "unused")
    check(done)
    assert "a client that was not closed has ended with an error: " in done.stderr and "planted" in done.stderr


def test_development_mode_prints_nothing(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=RECORDS)
    program = """
        import asyncio
        long = property(lambda loop: 60.0, lambda loop, seconds: None)  # the machine may be busy
        asyncio.BaseEventLoop.slow_callback_duration = long
        with blocking.Producer(address) as producer, blocking.Admin(address) as admin:
            with blocking.Consumer(address, group=topic, auto_offset_reset="earliest") as consumer:
                consumer.subscribe(topic)
                for number in range(1000):
                    producer.send(topic, b"%d" % number)
                for number, record in zip(range(1100), consumer):
                    assert record.offset == number
                consumer.commit()
                assert admin.groups.lag(topic)[topic].total == 0
        print("done")
    """
    done = run_program(program, kafkalite_broker.address, topic, "-X", "dev", "-W", "error")
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
