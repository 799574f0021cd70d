"""`produce` and `consume` beside a broker that is killed and started again, and beside topics that grow."""

import asyncio
import queue
import random
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Producer

from kafkalite.cli.client_options import Cluster
from kafkalite.cli.connection import Dialer, connect, open_client
from kafkalite.cli.failure import Failure
from kafkalite.cli.produce import PRODUCER_SETTINGS
from kafkalite.cli.records.lines import RecordLine
from kafkalite.cli.records.sender import CHECK_S, STICKY_BYTES, RecordSender
from kafkalite.cli.signals import REPEATED_S
from tests.kit.brokers import Kafkalite
from tests.kit.proxy import CuttingProxy
from tests.kit.seeds import chosen_seed
from tests.kit.server import running
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S

SEED = chosen_seed()
LINES = 200_000
KILLS = 3


class Process:
    """A command with pipes; `line()` is the next line of its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said: queue.Queue[str] = queue.Queue()
        self._lines: queue.Queue[str] = queue.Queue()
        for stream, into in ((process.stdout, self._lines), (process.stderr, self.said)):
            threading.Thread(target=self._read, args=(stream, into), daemon=True).start()

    @staticmethod
    def _read(stream: "Iterator[str]", into: "queue.Queue[str]") -> None:
        for line in stream:
            into.put(line.rstrip("\n"))

    def line(self) -> str:
        return self._lines.get(timeout=TIMEOUT_S)

    def write(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


Start = Callable[..., Process]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkalite]:
    """A broker in a process of its own, which the test may kill."""
    process = Kafkalite(tmp_path / "broker", {})
    process.start()
    yield process
    if process.running():
        process.kill()


@pytest.fixture
def start(broker: Kafkalite) -> Iterator[Start]:
    """Starts a command beside the broker; what still runs at the end is killed."""
    with ExitStack() as stack:

        def start(*args: str, host: str | None = None) -> Process:
            address = broker.address if host is None else f"{host}:{broker.address.rpartition(':')[2]}"
            command = [*COMMAND, *args, "--bootstrap-server", address]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, env=ENVIRON, text=True, **pipes))
            stack.callback(process.kill)
            return Process(process)

        yield start


def run(broker: Kafkalite, *args: str) -> str:
    command = [*COMMAND, *args, "--bootstrap-server", broker.address]
    done = subprocess.run(command, env=ENVIRON, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done.stdout


def restart(broker: Kafkalite) -> None:
    broker.kill()
    broker.start()


def test_follow_and_produce_continue_after_a_kill(broker: Kafkalite, start: Start) -> None:
    run(broker, "topic", "create", "t")
    writer, reader = start("produce", "t"), start("consume", "t", "-e", "--follow")
    for number in range(6):
        writer.write(f"line {number}")
        assert reader.line() == f"line {number}"
        if number % 2:
            restart(broker)
    assert writer.process.stdin
    writer.process.stdin.close()
    assert writer.process.wait(TIMEOUT_S) == 0
    assert run(broker, "consume", "t", "-e").splitlines() == [f"line {number}" for number in range(6)]


def test_slow_lines_survive_a_restart_behind_another_name(broker: Kafkalite, start: Start) -> None:
    """The broker advertises 127.0.0.1, which only the producer has connected to when the broker ends."""
    run(broker, "topic", "create", "t")
    writer, reader = start("produce", "t", host="localhost"), start("consume", "t", "--follow", "-e")
    writer.write("before")
    assert reader.line() == "before"
    broker.kill()
    writer.write("first")
    assert "Connection refused" in writer.said.get(timeout=TIMEOUT_S)
    with pytest.raises(subprocess.TimeoutExpired):  # meanwhile the topic is checked, by another client
        writer.process.wait(4 * CHECK_S)
    broker.start()
    assert reader.line() == "first"
    assert writer.process.stdin
    writer.process.stdin.close()
    assert writer.process.wait(TIMEOUT_S) == 0
    said = [writer.said.get(timeout=TIMEOUT_S)]
    while said[-1].endswith("; retrying"):  # the check of the topic may say so, too
        said.append(writer.said.get(timeout=TIMEOUT_S))
    assert said[-1] == "sent 2 record(s) to t"


def test_lines_produced_during_a_restart_are_stored_once_and_in_order(broker: Kafkalite, start: Start) -> None:
    run(broker, "topic", "create", "t")
    writer, reader = start("produce", "t"), start("consume", "t", "--follow", "-e")
    writer.write("before")
    assert reader.line() == "before"
    broker.kill()
    for number in range(100):
        writer.write(f"line {number}")
    while "retrying for 120 s" not in writer.said.get(timeout=TIMEOUT_S):
        continue
    broker.start()
    assert [reader.line() for _ in range(100)] == [f"line {number}" for number in range(100)]


def test_killed_broker_does_not_lose_duplicate_or_reorder_lines(
    broker: Kafkalite, start: Start, tmp_path: Path
) -> None:
    """The kills come while batches are on their way: some are written, and their acknowledgements lost."""
    print(f"KAFKALITE_SEED={SEED}")
    chance = random.Random(SEED)
    run(broker, "topic", "create", "t", "-p", "2")
    (tmp_path / "lines").write_text("".join(f"{number % 2}:{number}\n" for number in range(LINES)))
    reader = start("consume", "t", "-e", "--follow", "-n", str(LINES))
    writer = start("produce", "t", "-f", str(tmp_path / "lines"), "-k", ":")
    kills = sorted(chance.sample(range(1, LINES), KILLS))
    seen: list[int] = []
    while len(seen) < LINES:
        seen.append(int(reader.line()))
        if kills and len(seen) >= kills[0]:
            kills.pop(0)
            restart(broker)
    assert writer.process.wait(TIMEOUT_S) == 0
    for odd in (0, 1):
        assert [each for each in seen if each % 2 == odd] == list(range(odd, LINES, 2))
    assert f"sent {LINES} record(s) to t" in list(writer.said.queue)


def test_follow_reads_partitions_that_are_added(broker: Kafkalite, start: Start) -> None:
    run(broker, "topic", "create", "t")
    everything, new = start("consume", "t", "-e", "-f"), start("consume", "t", "-f")
    one = start("consume", "t", "-p", "0", "-e", "-f")
    writer = start("produce", "t", "-p", "0")
    for number in range(1000):  # `new` starts somewhere among these
        writer.write(f"zero {number}")
        assert everything.line() == one.line() == f"zero {number}"
        if not new._lines.empty():
            break
    run(broker, "topic", "alter", "t", "--partitions", "3")
    start("produce", "t", "-p", "2").write("two")
    assert everything.line() == "two"
    while new.line() != "two":
        continue
    writer.write("end")
    assert one.line() == "end", "one partition alone is still one partition"


def test_deleted_topic_ends_produce_and_consume(broker: Kafkalite, start: Start) -> None:
    run(broker, "topic", "create", "t")
    reader, writer = start("consume", "t", "-e", "-f"), start("produce", "t")
    writer.write("one")
    assert reader.line() == "one"
    run(broker, "topic", "delete", "t")
    writer.write("two")
    for process in (reader, writer):
        assert process.process.wait(TIMEOUT_S) == 2
        while "t was deleted while the command ran" not in process.said.get(timeout=TIMEOUT_S):
            continue


def waiting_producer(broker: Kafkalite, start: Start) -> Process:
    """A `produce` with one acknowledged record, whose next one is sent to a broker that is stopped."""
    run(broker, "topic", "create", "t")
    writer, reader = start("produce", "t"), start("consume", "t", "-e", "-f")
    writer.write("one")
    assert reader.line() == "one"
    broker.freeze()
    writer.write("two")
    return writer


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_produce_reports_acknowledged_records(
    broker: Kafkalite, start: Start, number: signal.Signals, code: int
) -> None:
    writer = waiting_producer(broker, start)
    writer.process.send_signal(number)
    assert writer.process.wait(TIMEOUT_S) == code
    assert writer.said.get(timeout=TIMEOUT_S).startswith("kafkalite: interrupted; 1 record(s) were acknowledged")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_produce_at_once_with_the_counts(
    broker: Kafkalite, start: Start, number: signal.Signals, code: int
) -> None:
    """The first signal waits a moment for the acknowledgement of a broker that is stopped."""
    writer = waiting_producer(broker, start)
    while writer.process.poll() is None:
        writer.process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            writer.process.wait(2 * REPEATED_S)
    assert writer.process.returncode == code
    report = "kafkalite: interrupted; 1 record(s) were acknowledged: line 1; continue with line 2"
    assert writer.said.get(timeout=TIMEOUT_S).startswith(report)
    assert writer.said.empty()


def test_signals_of_a_wrapper_are_one(broker: Kafkalite, start: Start) -> None:
    """`timeout` signals the process and its group: the records that are on their way are still waited for."""
    run(broker, "topic", "create", "t")
    writer, reader = start("produce", "t"), start("consume", "t", "-e", "-f")
    writer.write("one")
    assert reader.line() == "one"
    for _ in range(2):
        writer.process.send_signal(signal.SIGTERM)
    assert writer.process.wait(TIMEOUT_S) == 143
    assert writer.said.get(timeout=TIMEOUT_S).startswith(
        "kafkalite: interrupted; 1 record(s) were acknowledged: line 1"
    )


def test_a_second_signal_ends_a_member_that_cannot_commit(broker: Kafkalite, start: Start) -> None:
    run(broker, "topic", "create", "t")
    start("produce", "t").write("one")
    reader = start("consume", "t", "-e", "-f", "--group", "g")
    assert reader.line() == "one"
    broker.freeze()
    reader.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        reader.process.wait(2 * REPEATED_S)
    reader.process.send_signal(signal.SIGTERM)
    assert reader.process.wait(TIMEOUT_S) == 143
    assert "may not be committed" in reader.said.get(timeout=TIMEOUT_S)


@asynccontextmanager
async def sending(address: tuple[str, int], **options: Any) -> AsyncIterator[RecordSender]:
    """A sender to the topic t."""
    cluster = Cluster((address,))
    async with connect(cluster) as admin:
        sender = RecordSender(admin, (await admin.topics.describe("t"))["t"], None, **options)
        async with open_client(cluster, Producer, **PRODUCER_SETTINGS) as producer:
            sender.producer = producer
            yield sender


def line(value: bytes) -> RecordLine:
    return RecordLine(None, value, [], None, None)


async def test_a_batch_whose_acknowledgement_is_lost_is_written_once() -> None:
    """The proxy takes answers to Produce from the broker and cuts the connection."""
    async with CuttingProxy(0, random.Random(1), 0.2) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        async with running(settings=settings) as client:
            proxy._broker_port = int(client.broker.address.rpartition(":")[2])
            await client.create("t")
            values = [b"%d" % number for number in range(40)]
            async with sending(("127.0.0.1", proxy.port)) as sender:
                for value in values:
                    await sender.send(line(value))
                    await sender.flush()
                assert (await client.read("t"), sender.report()) == (
                    values,
                    "40 record(s) were acknowledged: lines 1 to 40; continue with line 41",
                )
            assert proxy.cuts > 0 and proxy.wrong == []


async def test_a_broker_that_was_reached_before_is_not_an_advertised_address_to_check(tmp_path: Path) -> None:
    """The command connects to localhost, and the broker advertises 127.0.0.1; another client has reached that."""
    outages: list[str] = []
    async with running(str(tmp_path)) as client:
        await client.create("t")
        host, port = client.broker.address.split(":")
        cluster = Cluster((("localhost", int(port)),))
        dialer = Dialer(cluster)
        dialer.on_outage = outages.append
        await Dialer(cluster)(asyncio.Protocol, host, int(port), None)
    with pytest.raises(OSError):
        await dialer(asyncio.Protocol, host, int(port), None)
    dialer.raise_failure()
    assert outages == [f"cannot connect to {host}:{port}: Connection refused; is a broker there?"]


async def test_lines_that_are_stored_behind_a_failed_one_are_named() -> None:
    """The limit of the topic is not known: it was reduced meanwhile."""
    async with running() as client:
        await client.create("t", partitions=2, **{"max.message.bytes": "1000"})
        host, port = client.broker.address.split(":")
        async with sending((host, int(port))) as sender:
            for number in range(1, 7):
                value = b"x" * 2000 if number == 3 else b"%d" % number
                await sender.send(RecordLine(None, value, [], number % 2, None))
            with pytest.raises(Failure) as caught:
                await sender.flush()
            await sender.abandon()
            text = sender.failure_text(caught.value)
        assert text.startswith("line 3: t-1: the batch is ")
        assert text.endswith(
            "; 5 record(s) were acknowledged: lines 1 to 2, lines 4 to 6; continue with line 3, without these lines"
        )
        assert (await client.read("t", 0), await client.read("t", 1)) == ([b"2", b"4", b"6"], [b"1", b"5"])


async def test_the_first_partition_of_records_without_a_key_is_chosen_at_random() -> None:
    async with running() as client:
        await client.create("t", partitions=6)
        asked = []

        def choose(count: int) -> int:
            asked.append(count)
            return 4

        host, port = client.broker.address.split(":")
        async with sending((host, int(port)), choose=choose) as sender:
            for value in (b"first", b"x" * STICKY_BYTES, b"next"):
                await sender.send(line(value))
            await sender.flush()
            await sender.send(line(b"after the flush"))
            await sender.flush()
        assert asked == [6]
        assert await client.read("t", 4) == [b"first", b"x" * STICKY_BYTES]
        assert await client.read("t", 5) == [b"next"]
        assert await client.read("t", 0) == [b"after the flush"]
